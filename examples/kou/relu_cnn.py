"""The network of Kou et al. (section 2): filters shared by the patches, a second layer that is not trained."""

from benign.parts import Cost, Count, Network, PerRun, Positive, Shape, column, default


class ReluCNN(Network):
    """f = F_+ - F_-, where F_j(x) is the mean over the m filters of class j of relu(<w, x_1>) + relu(<w, x_2>)."""

    width: Shape[Count]
    """filters of each class, m"""
    init_std: PerRun[Positive] = default(1e-4)
    """initial standard deviation, sigma_0; small compared with the change in training, as the theorem asks"""

    def initial_params(self, data, streams, dtype):
        filters = streams("init/filters").normal(2 * self.width, data.dim, dtype=dtype)
        return {"filters": filters * column(self.init_std, filters)}

    def forward(self, params, x):
        products = x.flatten(1, 2) @ params["filters"].transpose(1, 2)
        by_filter = products.relu().unflatten(1, x.shape[1:3]).sum(2)
        return by_filter[..., : self.width].mean(2) - by_filter[..., self.width :].mean(2)

    def cost(self, data):
        filters, size = 2 * self.width, data.tokens * data.dim
        return Cost(3 * filters * data.dim, size + 4 * filters * data.tokens, size * filters)
