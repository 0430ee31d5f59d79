"""Networks: what is trained. A network is `initial_params` and `forward`; the rest has slow defaults.

    network    Network, Pass: outputs, and gradients of any weighted sum of them in parameters or inputs
    attention, linear, two_layer, patch_cnn    the papers' networks, with closed-form gradients
    module     any `torch.nn.Module`; module_checks finds out beforehand what it does
    vision_transformer, resnet, pretrained    networks for images
    products   the protocols of networks that see inputs only through products with their weights
    compiled   which functions `--compile` compiles

Imports spec, streams, losses, data. Public: `bo.Attention`, `bo.Linear`, `bo.TwoLayer`, `bo.PatchCNN` and others.
"""
