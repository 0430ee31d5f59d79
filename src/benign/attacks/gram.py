"""Ascent in the coordinates of the weights: a perturbation is a combination of the columns of the weight matrix.

A gradient in a token is a combination of the columns of W [dim, columns], so ascent from zero stays at
delta = C W^T and needs only the products delta W = C G with the Gram matrix G = W^T W (papers/gram_pgd.md).
"""

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from benign import kernels
from benign.attacks import relu_ascent
from benign.attacks.attack import BestSoFar, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.losses import AttackLoss, slope
from benign.attacks.projections import shrink, shrinking, tiny_of
from benign.attacks.space import PerturbationSpace
from benign.losses import Outputs
from benign.networks import compiled
from benign.networks.attention import Attention
from benign.networks.network import Network, Pass
from benign.networks.products import ProductsPass, SeesProducts, Switch
from benign.networks.two_layer import TwoLayer
from benign.spec.registry import has_guarantee

Columns = Float[Tensor, "runs dim columns"]
Coordinates = Float[Tensor, "runs samples tokens coordinates"]
OfColumns = Float[Tensor, "runs samples tokens columns"]
Pairs = Float[Tensor, "2 runs samples tokens coordinates"]

ALIGNMENT = 16
"""width of a pair beyond the columns if there is a delta_0: its own coordinate, then zeros"""

PRODUCTS = Switch()
plain_attacks = PRODUCTS.off
"""in this context every ascent is in R^d; results differ by rounding alone"""


def space_for(target: Target, ball: Ball, steps: int) -> PerturbationSpace:
    """Return the space in which an ascent of so many steps is cheapest."""
    network, (samples, tokens, dim) = target.network, target.x.shape[1:]
    if not isinstance(network, SeesProducts) or not has_guarantee(network, "token_products"):
        return PerturbationSpace(target, ball)
    if not PRODUCTS.on or not ball.is_round:
        return PerturbationSpace(target, ball)
    columns = network.weight_columns(target.params)
    # The columns of `TwoLayer` are as long as a point, so they have no products with a token.
    if columns is None or columns.shape[1] != dim:
        return PerturbationSpace(target, ball)
    most = MOST_ON_GPU if columns.is_cuda else MOST
    products = 1 if _one_product(network, columns, "margin") else steps
    if not pays(samples * tokens, dim, columns.shape[2], steps, most, products):
        return PerturbationSpace(target, ball)
    return GramSpace(target, ball, network, columns)


def _one_product(network: Network, columns: Columns, loss: AttackLoss) -> bool:
    """Return whether an ascent needs one product with the Gram matrix, not one a step (benign.attacks.relu_ascent)."""
    return relu_ascent.why_not(network, columns.shape[2], columns.device, loss) is None


def multiplications(
    tokens: int, dim: int, columns: int, steps: int, products: int | None = None
) -> tuple[int, int]:
    """Return the multiplications of one run's ascent: in R^d, and by `products` with the Gram matrix, one a step."""
    through_space, products = 2 * steps * tokens * dim * columns, products or steps
    return through_space, (columns * dim + 2 * tokens * dim + products * tokens * columns) * columns


MOST, MOST_ON_GPU = 2 / 3, 1.0
"""largest share of the multiplications in R^d at which products pay. Wang's figure 1 has 0.75: on an H200 products took
0.87 of the time, and 0.58 compiled (0.4 in tf32)"""


def pays(
    tokens: int,
    dim: int,
    columns: int,
    steps: int,
    most: float = MOST,
    products: int | None = None,
) -> bool:
    """Return whether products are cheaper than R^d, by the multiplications of one run."""
    through_space, by_products = multiplications(tokens, dim, columns, steps, products)
    # Measured on one thread: with less than two thirds of the multiplications, products took 0.33 to 0.76 of the time
    # (d = 1024 and 272 columns 0.37, 1040 columns 0.66), with more 0.9 to 1.4. If a step saves few multiplications,
    # its additional calls cost more: 1.25 of the time at d = 64 with 32 columns and 40 tokens.
    saved = through_space - by_products
    return by_products < most * through_space and saved > 200_000 * steps


class GramSpace(PerturbationSpace):
    """Perturbations delta = C W^T + s delta_0, where delta_0 is the first one: uniform in the ball, or zero.

    A perturbation is a pair along a first axis of length 2: its coefficients [C, s], and its products
    [delta W, <delta, delta_0>]. |delta|^2 is the sum of coefficients times products.
    """

    def __init__(self, target: Target, ball: Ball, network: SeesProducts, columns: Columns):
        super().__init__(target, ball)
        self.network, self._columns = network, columns
        self.gram = torch.bmm(columns.transpose(1, 2), columns)
        self.lengths = self.gram.diagonal(dim1=1, dim2=2).sqrt()[:, None, None]
        self.least = torch.finfo(columns.dtype).eps ** 0.5
        self.clean = self._products(target.x)
        self.on_cpu = columns.device.type == "cpu"
        self.fused = kernels.why_not(columns) is None and columns.shape[2] <= kernels.LARGEST
        # On a CPU all steps share their memory: allocating it takes longer than computing what it holds. A GPU caches
        # its memory, and compiled code writes only to its own.
        self.shares_memory = self.on_cpu or self.fused
        self._inputs = torch.empty_like(self.clean) if self.on_cpu else None
        self._gradient: Tensor | None = None
        self._terms: Tensor | None = None

    def _products(self, points: Points) -> OfColumns:
        return torch.bmm(points.flatten(1, 2), self._columns).unflatten(1, points.shape[1:3])

    def begin(self, draw: str | None) -> Pairs:
        """Return the first perturbation; those of an earlier ascent, with another delta_0, lose their meaning."""
        coefficients = products = torch.zeros_like(self.clean)
        self._start, self._start_products = None, None
        if draw is not None:
            self._start = self._uniform(draw)
            self._start_products = self._products(self._start)
            square = self._start.square().sum(-1, keepdim=True)
            coefficients = _with_start(coefficients, torch.ones_like(square))
            products = _with_start(self._start_products, square)
        first = torch.stack([coefficients, products])
        if self.shares_memory:
            self._gradient, self._terms = torch.zeros_like(first), torch.empty_like(first[0])
        return first

    def evaluate(self, delta: Pairs, loss: AttackLoss) -> tuple[Outputs, Pairs]:
        """Return the outputs and the gradient, which `move` scales: that saves a pass over memory."""
        if self._has_kernel:
            return self._evaluate_by_kernel(delta, loss)
        here = self.products_pass(delta)
        return here.outputs, self.gradient(here, slope(loss, here.outputs, self.y))

    def move(
        self, delta: Pairs, ascent_direction: Pairs, length: Units, out: Pairs | None = None
    ) -> Pairs:
        """Return the projection of a step of this length along a gradient of any length."""
        if self.fused:
            return self._step_by_kernel(delta, None, ascent_direction, length, 1.0, out)
        length = length * self.inverse_norm(ascent_direction)
        return super().move(delta, ascent_direction, length, out if self.on_cpu else None)

    def momentum_step(
        self,
        here: Pairs,
        before: Pairs | None,
        ascent_direction: Pairs,
        length: Units,
        momentum: float,
        out: Pairs | None = None,
    ) -> Pairs:
        if self.fused:
            return self._step_by_kernel(here, before, ascent_direction, length, momentum, out)
        return super().momentum_step(here, before, ascent_direction, length, momentum, out)

    def _step_by_kernel(
        self,
        here: Pairs,
        before: Pairs | None,
        gradient: Pairs,
        length: Units,
        momentum: float,
        out: Pairs | None,
    ) -> Pairs:
        return kernels.gram_step(
            here,
            before,
            gradient,
            length,
            self.radius,
            self.lengths,
            self.ball.per == "token",
            momentum,
            self.least,
            torch.empty_like(here) if out is None else out,
        )

    @cached_property
    def _has_kernel(self) -> bool:
        """Whether one kernel computes the network's outputs and gradients: learned attention on attacked tokens."""
        network = self.network
        return (
            self.fused
            and type(network) is Attention
            and network.attend == "learned"
            and kernels.fits_attention(self.clean.shape[2], network.hidden)
        )

    def _evaluate_by_kernel(self, delta: Pairs, loss: AttackLoss) -> tuple[Outputs, Pairs]:
        network, gradient = self.network, self._gradient
        assert isinstance(network, Attention)
        assert gradient is not None
        start = self._start_products
        outputs = kernels.attention(
            self.clean,
            delta[1],
            self.y,
            loss == "cross_entropy",
            network.heads,
            network.hidden,
            gradient[0],
            start,
            None if start is None else gradient[1, ..., start.shape[-1]],
        )
        self._multiply(gradient)
        return outputs, gradient

    def _multiply(self, pair: Pairs) -> None:
        """Write the products of the coefficients of a pair."""
        coefficients, products = map(self._of_columns, pair)
        torch.bmm(coefficients.flatten(1, 2), self.gram, out=products.flatten(1, 2))

    def ascend(
        self,
        delta: Pairs,
        loss: AttackLoss,
        length: Units,
        steps: int,
        *,
        best: BestSoFar | None = None,
        wrong: Bool[Tensor, "runs samples"] | None = None,
    ) -> Pairs:
        if wrong is None and self._start is None and self._in_one_kernel(loss):
            return self._all_steps(delta, length, steps, best)
        return super().ascend(delta, loss, length, steps, best=best, wrong=wrong)

    def _all_steps(self, delta: Pairs, length: Units, steps: int, best: BestSoFar | None) -> Pairs:
        """Take the steps in one kernel, which starts with the products of f's gradient."""
        network, params = self.target.network, self.target.params
        assert isinstance(network, TwoLayer)
        rising = self.products_pass(delta).inputs_gradient(torch.ones_like(self.y))
        along = torch.bmm(rising.flatten(1, 2), self.gram).view_as(rising)
        ascent = relu_ascent.Ascent(
            network, params, self.clean, self.gram, self.lengths, self.y, self.radius, self.least
        )
        return ascent.run(delta, along, length, steps, best)

    def _in_one_kernel(self, loss: AttackLoss) -> bool:
        return _one_product(self.target.network, self._columns, loss)

    def _steps(self, delta: Pairs, loss: AttackLoss, length: Units, steps: int) -> Pairs:
        if compiled.is_on() and self._start is None and not self._has_kernel:
            coefficients, products = delta
            for _ in range(steps):
                coefficients, products = _step(self, coefficients, products, loss, length)
            return torch.stack([coefficients, products])
        for _ in range(steps):
            delta = self.move(delta, self.evaluate(delta, loss)[1], length, out=delta)
        return delta

    def run(self, delta: Pairs) -> Pass:
        return _GramPass(self, self.products_pass(delta))

    def products_pass(self, delta: Pairs) -> ProductsPass:
        """Run the network on the products of the perturbed points."""
        inputs = torch.add(self.clean, self._of_columns(delta[1]), out=self._inputs)
        return self.network.products_pass(self.target.params, inputs)

    def _of_columns(self, half: Coordinates) -> OfColumns:
        """Return the coefficients of the columns, or the products with them, without that of delta_0."""
        return half[..., : self._columns.shape[2]]

    def gradient(self, here: ProductsPass, c: Outputs) -> Pairs:
        """Return the gradient of sum(c * outputs) as a pair; its coefficient of delta_0 is always 0."""
        if self._gradient is None:
            return self._new_gradient(here.inputs_gradient(c))
        coefficients = self._of_columns(self._gradient[0])
        here.inputs_gradient(c, out=coefficients)
        self._multiply(self._gradient)
        if self._start_products is not None:
            along = self._gradient[1, ..., self._columns.shape[2]]
            torch.sum(coefficients * self._start_products, -1, out=along)
        return self._gradient

    def _new_gradient(self, coefficients: OfColumns) -> Pairs:
        """Return the same in new memory."""
        products = torch.bmm(coefficients.flatten(1, 2), self.gram).view_as(coefficients)
        if self._start_products is not None:
            along = (coefficients * self._start_products).sum(-1, keepdim=True)
            coefficients = _with_start(coefficients, torch.zeros_like(along))
            products = _with_start(products, along)
        return torch.stack([coefficients, products])

    def norm(self, delta: Pairs) -> Units:
        """Return the l2 norm of each unit (token or point)."""
        terms = torch.mul(*delta, out=self._terms)
        return terms.sum(self.ball.unit_axes, keepdim=True).clamp_min_(0).sqrt_()

    def steepest(self, gradient: Pairs) -> Pairs:
        return gradient.mul_(self.inverse_norm(gradient))

    def inverse_norm(self, gradient: Pairs) -> Units:
        """Return the factor that gives a gradient unit length, 0 for a zero gradient. May scale the gradient in place.

        As in `Ball.steepest` the norm is measured in units of the largest part, here the longest column times its
        coefficient, because squares of saturated gradients underflow. If columns cancel up to rounding, the factor
        stays bounded.
        """
        out = None if self._terms is None else self._of_columns(self._terms)
        sizes = torch.mul(self._of_columns(gradient[0]), self.lengths, out=out)
        scale, tiny = sizes.abs_().amax(self.ball.unit_axes, keepdim=True), tiny_of(sizes)
        # Coefficients of columns of length 0 must not be scaled up.
        inverse = scale.clamp_min(tiny).reciprocal_().masked_fill_(scale <= tiny, 0)
        if self.on_cpu and _squares_fit(scale):  # saves two passes over memory
            return inverse / (self.norm(gradient) * inverse).clamp_min_(self.least)
        return self.norm(gradient.mul_(inverse)).clamp_min_(self.least).reciprocal_()

    def project(self, delta: Pairs) -> Pairs:
        return shrink(delta, self.norm(delta), self.radius)

    def points(self, delta: Pairs) -> Points:
        return self._end(delta)[0]

    def finish(self, delta: Pairs) -> tuple[Points, Pass]:
        """Return the perturbed points and the pass on them, which reuses their products with the weights."""
        points, shorter = self._end(delta)
        products = torch.addcmul(self.clean, self._of_columns(delta[1]), shorter)
        here = self.network.known_pass(self.target.params, points, products)
        here.clean_products = self.clean
        return points, here

    def _end(self, delta: Pairs) -> tuple[Points, Units]:
        """Return the perturbed points, and the factors of their last projection in R^d.

        That projection is needed because coefficients times products lose digits of the norm if columns nearly cancel.
        """
        x, coefficients = self.target.x, delta[0]
        rows = self._of_columns(coefficients).flatten(1, 2)
        dense = torch.bmm(rows, self._columns.transpose(1, 2)).reshape(x.shape)
        if self._start is not None:
            own = self._columns.shape[2]
            dense.addcmul_(coefficients[..., own : own + 1], self._start)
        shorter = shrinking(self.ball.norm(dense), self.radius)
        return torch.addcmul(x, dense, shorter, out=dense), shorter


def _with_start(of_columns: OfColumns, of_start: Tensor) -> Coordinates:
    """Return one half of a pair, with zeros up to an aligned width: rows of 273 numbers are slow on every device."""
    return pad(torch.cat([of_columns, of_start], -1), (0, ALIGNMENT - 1))


def _squares_fit(sizes: Units) -> bool:
    """Return whether the squares of these sizes, except those of 0, neither under- nor overflow."""
    tiny = tiny_of(sizes)
    small, large = tiny**0.4, tiny**-0.4
    return not bool((((sizes < small) & (sizes > tiny)) | (sizes > large)).any())


@compiled.compiled
def _step(
    space: GramSpace, coefficients: OfColumns, products: OfColumns, loss: AttackLoss, length: Units
) -> tuple[OfColumns, OfColumns]:
    """Take a step of an ascent that started at zero, in one expression that compiles to few passes over memory.

    It takes half the time of the steps of `GramSpace` on an H200 and four fifths on a CPU. Coefficients and products
    are separate tensors here: as one tensor they took 84 us per run on the H200 instead of 68.
    """
    here = space.network.products_pass(space.target.params, space.clean + products)
    gradient = here.inputs_gradient(slope(loss, here.outputs, space.y))
    along = torch.bmm(gradient.flatten(1, 2), space.gram).view_as(gradient)
    axes, tiny = space.ball.unit_axes, tiny_of(gradient)
    scale = (gradient * space.lengths).abs().amax(axes, keepdim=True)
    scale = torch.where(scale > tiny, 1 / scale, 0)
    # Scaled before anything else: a length divided by the size of a vanishing gradient is infinite.
    gradient, along = gradient * scale, along * scale
    norm = (gradient * along).sum(axes, keepdim=True).clamp_min(0).sqrt()
    size = length / norm.clamp_min(space.least)
    coefficients, products = coefficients + size * gradient, products + size * along
    norm = (coefficients * products).sum(axes, keepdim=True).clamp_min(0).sqrt()
    shorter = (space.radius / norm.clamp_min(tiny)).clamp_max(1)
    return coefficients * shorter, products * shorter


class _GramPass(Pass):
    """A pass on perturbed points, with gradients in the coordinates of the perturbation."""

    def __init__(self, space: GramSpace, here: ProductsPass):
        self._space, self._here = space, here
        self.outputs = here.outputs

    def inputs_gradient(self, c: Outputs) -> Pairs:
        return self._space.gradient(self._here, c)
