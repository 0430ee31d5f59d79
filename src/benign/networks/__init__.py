"""Networks, which are trained. A network needs `initial_params` and `forward`; the rest has slow defaults.

    network    Network, Pass: outputs, and gradients of any weighted sum of them in parameters or inputs
    attention, linear, two_layer, patch_cnn    the papers' networks, with closed-form gradients
    own_directions    queries and keys of one point, in as many directions as they have
    initial    laws of initial weights
    module     any `torch.nn.Module`; module_checks builds it and checks it before work
    vision_transformer, resnet, pretrained    networks for images; pictures is their base class, vit reads weights
    products   protocols of networks that see tokens only through products with their weights
    singular   largest singular values
    compiled   functions that `--compile` compiles

Imports spec, streams, losses, data. Public: `bo.Attention`, `bo.Linear`, `bo.TwoLayer`, `bo.PatchCNN` and others.
"""
