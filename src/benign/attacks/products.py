"""Climbs in the coordinates of the weights: a perturbation is a combination of the columns of the weight matrix.

A gradient in a token is a combination of the columns of W [dim, columns], so a climb from zero stays at
delta = C W^T and asks only for products delta W = C G with the Gram matrix G = W^T W (papers/gram_pgd.md).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.ground import PerturbationSpace
from benign.attacks.losses import AttackLoss, slope
from benign.attacks.projections import shrink, shrinking, tiny_of
from benign.losses import Outputs
from benign.networks import compiled
from benign.networks.network import Pass
from benign.networks.products import ProductsPass, SeesProducts, Shortcut

Columns = Float[Tensor, "runs dim columns"]
Coordinates = Float[Tensor, "runs samples tokens coordinates"]
OfColumns = Float[Tensor, "runs samples tokens columns"]
Pairs = Float[Tensor, "2 runs samples tokens coordinates"]

PRODUCTS = Shortcut()
plain_attacks = PRODUCTS.off
"""inside, all climbs are in R^d; results differ by rounding alone"""


def ground_of(target: Target, ball: Ball, steps: int) -> PerturbationSpace:
    """The cheaper ground for climbs of so many steps."""
    network, (samples, tokens, dim) = target.network, target.x.shape[1:]
    # A class must declare it itself: a subclass may see points in another way.
    if not isinstance(network, SeesProducts) or "products_pass" not in vars(type(network)):
        return PerturbationSpace(target, ball)
    if not PRODUCTS.on or ball.p != 2 or ball.box is not None:
        return PerturbationSpace(target, ball)
    columns = network.weight_columns(target.params)
    # Columns longer than a token, which meet all tokens of a point at once (`TwoLayer`), have no products with one.
    if columns is None or columns.shape[1] != dim:
        return PerturbationSpace(target, ball)
    most = MOST_ON_GPU if columns.is_cuda else MOST
    if not pays(samples * tokens, dim, columns.shape[2], steps, most):
        return PerturbationSpace(target, ball)
    return GramSpace(target, ball, network, columns)


def multiplications(tokens: int, dim: int, columns: int, steps: int) -> tuple[int, int]:
    """Of a climb of a run: in R^d, and by products."""
    through_space = 2 * steps * tokens * dim * columns
    return through_space, (columns * dim + 2 * tokens * dim + steps * tokens * columns) * columns


MOST, MOST_ON_GPU = 2 / 3, 1.0
"""share of the multiplications in R^d that products may take. Wang's figure 1 has 0.75: on an H200 products took 0.87
of the time, and 0.58 compiled (0.4 in tf32)"""


def pays(tokens: int, dim: int, columns: int, steps: int, most: float = MOST) -> bool:
    """Whether products are cheaper, by the multiplications of a run; shapes and the kind of device decide."""
    through_space, by_products = multiplications(tokens, dim, columns, steps)
    # Measured on one thread: with less than two thirds of the multiplications, products took 0.33 to 0.76 of the time
    # (d = 1024 and 272 columns 0.37, 1040 columns 0.66), with more 0.9 to 1.4. Where a step has few to save, its calls
    # cost more than they save: 1.25 of the time at d = 64 with 32 columns and 40 tokens.
    saved = through_space - by_products
    return by_products < most * through_space and saved > 200_000 * steps


class GramSpace(PerturbationSpace):
    """Perturbations delta = C W^T + s delta_0 with delta_0 the first one: uniform in the ball, or none.

    One is a pair, on a first axis of length 2: its coefficients [C, s], and its products [delta W, <delta, delta_0>]
    with what they multiply. |delta|^2 is the sum of coefficients times products.
    """

    def __init__(self, target: Target, ball: Ball, network: SeesProducts, columns: Columns):
        super().__init__(target, ball)
        self.network, self._columns = network, columns
        self.gram = torch.bmm(columns.transpose(1, 2), columns)
        self.lengths = self.gram.diagonal(dim1=1, dim2=2).sqrt()[:, None, None]
        self.least = torch.finfo(columns.dtype).eps ** 0.5
        self.clean = self._products(target.x)
        # Memory for all steps, on a CPU: where nothing is in cache, fresh memory takes longer than what is computed in
        # it. A GPU keeps its own, and compiled code writes nowhere but in its own.
        self.on_cpu = columns.device.type == "cpu"
        self.fuses = compiled.is_on() and not self.on_cpu
        self.seen = torch.empty_like(self.clean) if self.on_cpu else None
        self._gradient: Tensor | None = None
        self._terms: Tensor | None = None

    def _products(self, points: Points) -> OfColumns:
        return torch.bmm(points.flatten(1, 2), self._columns).unflatten(1, points.shape[1:3])

    def begin(self, draw: str | None) -> Pairs:
        """Perturbations of an earlier climb, with another delta_0, have no meaning from here on."""
        coefficients = products = torch.zeros_like(self.clean)
        self._start, self._start_products = None, None
        if draw is not None:
            self._start = self._uniform(draw)
            self._start_products = self._products(self._start)
            square = self._start.square().sum(-1, keepdim=True)
            coefficients = torch.cat([coefficients, torch.ones_like(square)], -1)
            products = torch.cat([self._start_products, square], -1)
        first = torch.stack([coefficients, products])
        if self.on_cpu:
            self._gradient, self._terms = torch.zeros_like(first), torch.empty_like(first[0])
        return first

    def look(self, delta: Pairs, loss: AttackLoss) -> tuple[Outputs, Pairs]:
        return _look(self, delta, loss) if self.fuses else super().look(delta, loss)

    def move(
        self, delta: Pairs, ascent_direction: Pairs, length: Units, out: Pairs | None = None
    ) -> Pairs:
        if self.fuses:
            return _move(self, delta, ascent_direction, length)
        return super().move(delta, ascent_direction, length, out if self.on_cpu else None)

    def ascend(self, delta: Pairs, loss: AttackLoss, length: Units, steps: int) -> Pairs:
        """In place on a CPU."""
        if compiled.is_on() and self._start is None:
            return self._compiled_climb(delta, loss, length, steps)
        for _ in range(steps):
            # Not made of unit length before it is walked along: one pass over memory less.
            seen = self.see(delta)
            ascent_direction = self.gradient(seen, slope(loss, seen.outputs, self.y))
            delta = self.move(
                delta, ascent_direction, length * self.inverse_norm(ascent_direction), out=delta
            )
        return delta

    def _compiled_climb(self, delta: Pairs, loss: AttackLoss, length: Units, steps: int) -> Pairs:
        coefficients, products = delta
        for _ in range(steps):
            coefficients, products = _step(self, coefficients, products, loss, length)
        return torch.stack([coefficients, products])

    def run(self, delta: Pairs) -> Pass:
        return _Seen(self, self.see(delta))

    def see(self, delta: Pairs) -> ProductsPass:
        """What the network makes of the perturbed points."""
        seen = torch.add(self.clean, self._of_columns(delta[1]), out=self.seen)
        return self.network.products_pass(self.target.params, seen)

    def _of_columns(self, half: Coordinates) -> OfColumns:
        """Coefficients of the columns, or products with them; not those of delta_0."""
        return half[..., : self._columns.shape[2]]

    def gradient(self, here: ProductsPass, c: Outputs) -> Pairs:
        """The network gives the coefficients; that of delta_0 is always 0."""
        if self._gradient is None:
            return self._new_gradient(here.inputs_gradient(c))
        coefficients, products = map(self._of_columns, self._gradient)
        here.inputs_gradient(c, out=coefficients)
        torch.bmm(coefficients.flatten(1, 2), self.gram, out=products.flatten(1, 2))
        if self._start_products is not None:
            torch.sum(coefficients * self._start_products, -1, out=self._gradient[1, ..., -1])
        return self._gradient

    def _new_gradient(self, coefficients: OfColumns) -> Pairs:
        """The same in fresh memory."""
        products = torch.bmm(coefficients.flatten(1, 2), self.gram).view_as(coefficients)
        if self._start_products is not None:
            along = (coefficients * self._start_products).sum(-1, keepdim=True)
            coefficients = torch.cat([coefficients, torch.zeros_like(along)], -1)
            products = torch.cat([products, along], -1)
        return torch.stack([coefficients, products])

    def norm(self, delta: Pairs) -> Units:
        """l2 norm of each unit (token or point)."""
        terms = torch.mul(*delta, out=self._terms)
        return terms.sum(self.ball.unit_axes, keepdim=True).clamp_min_(0).sqrt_()

    def steepest(self, gradient: Pairs) -> Pairs:
        return gradient.mul_(self.inverse_norm(gradient))

    def inverse_norm(self, gradient: Pairs) -> Units:
        """What brings a gradient to unit length; 0 where there is none. The gradient may be scaled in place.

        As in `Ball.steepest` it is measured in units of its largest part, here the longest of the columns that it
        combines: squares of saturated gradients underflow. A norm below what rounding may leave of columns that
        cancel is not divided by.
        """
        room = None if self._terms is None else self._of_columns(self._terms)
        sizes = torch.mul(self._of_columns(gradient[0]), self.lengths, out=room)
        scale, tiny = sizes.abs_().amax(self.ball.unit_axes, keepdim=True), tiny_of(sizes)
        # A combination of columns of length 0 alone has coefficients, which must not be scaled up.
        inverse = scale.clamp_min(tiny).reciprocal_().masked_fill_(scale <= tiny, 0)
        if self.on_cpu and _squares_fit(scale):  # two passes over memory less
            return inverse / (self.norm(gradient) * inverse).clamp_min_(self.least)
        return self.norm(gradient.mul_(inverse)).clamp_min_(self.least).reciprocal_()

    def project(self, delta: Pairs) -> Pairs:
        return shrink(delta, self.norm(delta), self.radius)

    def points(self, delta: Pairs) -> Points:
        return self._end(delta)[0]

    def finish(self, delta: Pairs) -> tuple[Points, Pass]:
        """The network need not multiply the points by its weights again."""
        points, shorter = self._end(delta)
        products = torch.addcmul(self.clean, self._of_columns(delta[1]), shorter)
        return points, self.network.known_pass(self.target.params, points, products)

    def _end(self, delta: Pairs) -> tuple[Points, Units]:
        """The perturbed points, and what their perturbations were multiplied by.

        They are projected once more: where columns nearly cancel, coefficients times products lose digits of the norm.
        """
        x, coefficients = self.target.x, delta[0]
        rows = self._of_columns(coefficients).flatten(1, 2)
        dense = torch.bmm(rows, self._columns.transpose(1, 2)).reshape(x.shape)
        if self._start is not None:
            dense.addcmul_(coefficients[..., -1:], self._start)
        shorter = shrinking(self.ball.norm(dense), self.radius)
        return torch.addcmul(x, dense, shorter, out=dense), shorter


def _squares_fit(sizes: Units) -> bool:
    """Whether squares of numbers of these sizes are far from under- and overflow; 0 is itself."""
    tiny = tiny_of(sizes)
    small, large = tiny**0.4, tiny**-0.4
    return not bool((((sizes < small) & (sizes > tiny)) | (sizes > large)).any())


@compiled.compiled
def _step(
    ground: GramSpace, coefficients: OfColumns, products: OfColumns, loss: AttackLoss, length: Units
) -> tuple[OfColumns, OfColumns]:
    """A step of a climb from zero in one go, which the compiler makes a few passes over memory.

    It takes half the time of the steps of `ascend` on an H200 and four fifths on a CPU. The halves of a
    perturbation are tensors of their own: as one, it took 84 us a run on the H200 instead of 68.
    """
    seen = ground.network.products_pass(ground.target.params, ground.clean + products)
    ascent_direction = seen.inputs_gradient(slope(loss, seen.outputs, ground.y))
    along = torch.bmm(ascent_direction.flatten(1, 2), ground.gram).view_as(ascent_direction)
    axes, tiny = ground.ball.unit_axes, tiny_of(ascent_direction)
    scale = (ascent_direction * ground.lengths).abs().amax(axes, keepdim=True)
    scale = torch.where(scale > tiny, 1 / scale, 0)
    # Scaled before anything else: a length over the size of a vanishing gradient is infinite.
    ascent_direction, along = ascent_direction * scale, along * scale
    norm = (ascent_direction * along).sum(axes, keepdim=True).clamp_min(0).sqrt()
    size = length / norm.clamp_min(ground.least)
    coefficients, products = coefficients + size * ascent_direction, products + size * along
    norm = (coefficients * products).sum(axes, keepdim=True).clamp_min(0).sqrt()
    shorter = (ground.radius / norm.clamp_min(tiny)).clamp_max(1)
    return coefficients * shorter, products * shorter


@compiled.compiled
def _look(ground: GramSpace, delta: Pairs, loss: AttackLoss) -> tuple[Outputs, Pairs]:
    """For climbs that keep their best, which judge: they are bound by passes over memory too."""
    return PerturbationSpace.look(ground, delta, loss)


@compiled.compiled
def _move(ground: GramSpace, delta: Pairs, ascent_direction: Pairs, length: Units) -> Pairs:
    return PerturbationSpace.move(ground, delta, ascent_direction, length)


class _Seen(Pass):
    """A pass on perturbed points, with gradients in the coordinates of the perturbation."""

    def __init__(self, ground: GramSpace, here: ProductsPass):
        self._ground, self._here = ground, here
        self.outputs = here.outputs

    def inputs_gradient(self, c: Outputs) -> Pairs:
        return self._ground.gradient(self._here, c)
