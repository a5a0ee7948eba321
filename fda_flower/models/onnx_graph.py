"""Graphs of ONNX, made of EfficientNet-Lite's modules and weights; onnx is imported when one is made."""

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.models.efficientnet_lite import Block, EfficientNetLite, Norm, Strided
from fda_flower.models.split import PREPARE, Stop

OPSET, FORMAT = 17, 8
"""Versions of ONNX's operations and of its files, which ONNX Runtime knows since 1.13."""

IMAGES, STATISTICS = "images", "statistics"
"""The inputs of a graph: prepared images, shape ``(n, channels, h, w)``, and BatchNorm's values."""


def graph_of(network: EfficientNetLite, of_statistics: bool) -> bytes:
    """Return the file of a network without its preparation, or of the part of it that a cut has left.

    With `of_statistics`, the means and variances of its BatchNorm layers are an input, one after the other,
    float32, of one dimension; otherwise they are constants.
    """
    from onnx import TensorProto, helper

    graph = _Graph(of_statistics)
    outputs = _added(network, graph, IMAGES)
    inputs = [helper.make_tensor_value_info(IMAGES, TensorProto.FLOAT, ["n", None, None, None])]
    if of_statistics:
        numbers = [*graph.statistics.values()]
        parts = helper.make_node(
            "Split", [STATISTICS, graph.constant(np.array(numbers))], [*graph.statistics], axis=0
        )
        graph.nodes.insert(0, parts)
        inputs.append(helper.make_tensor_value_info(STATISTICS, TensorProto.FLOAT, [sum(numbers)]))
    info = [helper.make_tensor_value_info(outputs, TensorProto.FLOAT, None)]
    made = helper.make_graph(graph.nodes, "network", inputs, info, graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    file: bytes = helper.make_model(made, opset_imports=opsets, ir_version=FORMAT).SerializeToString()
    return file


class _Graph:
    """The operations of a graph, its constants, and the sizes of its statistics by name."""

    def __init__(self, of_statistics: bool) -> None:
        self.of_statistics = of_statistics
        self.nodes, self.constants, self.statistics = list[Any](), list[Any](), dict[str, int]()

    def constant(self, value: Tensor | NDArray[Any]) -> str:
        """Add a constant, and return its name."""
        from onnx import numpy_helper

        name = f"constant {len(self.constants)}"
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def statistic(self, value: Tensor | None) -> str:
        """Add a mean or a variance, an input or a constant, and return its name."""
        assert value is not None
        if not self.of_statistics:
            return self.constant(value)
        name = f"statistic {len(self.statistics)}"
        self.statistics[name] = len(value)
        return name

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add an operation of ONNX, and return the name of its output."""
        from onnx import helper

        name = f"output {len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **settings))
        return name


@singledispatch
def _added(module: nn.Module, graph: _Graph, x: str) -> str:
    """Add a module's operations on the input `x`; return the name of its output."""
    raise TypeError(f"no graph has a module {type(module).__name__}")


@_added.register
def _nothing(module: nn.Identity | Stop, graph: _Graph, x: str) -> str:
    return x


@_added.register
def _sequence(module: EfficientNetLite | nn.Sequential | Block, graph: _Graph, x: str) -> str:
    outputs = x
    for name, child in module.named_children():
        if name != PREPARE:
            outputs = _added(child, graph, outputs)
    return graph.node("Add", outputs, x) if getattr(module, "adds", False) else outputs


@_added.register
def _convolution(module: nn.Conv2d, graph: _Graph, x: str) -> str:
    before = module.padding[0]
    padding = {"auto_pad": "SAME_UPPER"} if isinstance(module, Strided) else {"pads": [before] * 4}
    shape = {"kernel_shape": module.kernel_size, "strides": module.stride, "group": module.groups}
    return graph.node("Conv", x, graph.constant(module.weight), **shape, **padding)


@_added.register
def _norm(module: Norm, graph: _Graph, x: str) -> str:
    values = [graph.constant(value) for value in (module.weight, module.bias)]
    values += [graph.statistic(value) for value in (module.running_mean, module.running_var)]
    outputs = graph.node("BatchNormalization", x, *values, epsilon=module.eps)
    if not module.active:
        return outputs
    return graph.node("Clip", outputs, *(graph.constant(np.array(each, np.float32)) for each in (0, 6)))


@_added.register
def _pooling(module: nn.AdaptiveAvgPool2d, graph: _Graph, x: str) -> str:
    return graph.node("GlobalAveragePool", x)


@_added.register
def _flattening(module: nn.Flatten, graph: _Graph, x: str) -> str:
    return graph.node("Flatten", x)
