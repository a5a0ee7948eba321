"""EfficientNet-Lite in ONNX Runtime, which computes features on a CPU in a third of PyTorch's time."""

import copy
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.models.efficientnet_lite import EfficientNetLite, Norm
from fda_flower.models.kinds import TwoStatistics
from fda_flower.models.onnx_graph import IMAGES, STATISTICS, graph_of
from fda_flower.models.split import PREPARE


@lru_cache(maxsize=2)
def in_onnx_runtime(backbone: nn.Module) -> nn.Module:
    """Return a copy of a frozen backbone in which ONNX Runtime computes each EfficientNet-Lite on the CPU.

    Its features differ from PyTorch's by about 1e-5 of their size.
    """
    return _replaced(copy.deepcopy(backbone))


def _replaced(module: nn.Module) -> nn.Module:
    if isinstance(module, EfficientNetLite):
        return InOnnxRuntime(module, Graph(module))
    if isinstance(module, TwoStatistics) and isinstance(module.tail, EfficientNetLite):
        graph = Graph(module.tail, of_statistics=True)
        module.tail, module.own = (InOnnxRuntime(each, graph) for each in (module.tail, module.own))
        module.trunk = _replaced(module.trunk)
        return module
    for name, child in module.named_children():
        setattr(module, name, _replaced(child))
    return module


class InOnnxRuntime(nn.Module):
    """A network, or a part of one, that ONNX Runtime computes from a graph.

    PyTorch does while the network's statistics are estimated, and for numbers that are not finite, which
    operations of ONNX Runtime may hide.
    """

    def __init__(self, network: nn.Module, graph: "Graph") -> None:
        super().__init__()
        self.network, self._graph = network, graph
        self._norms = [module for module in network.modules() if isinstance(module, Norm)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's outputs for images of shape ``(n, channels, height, width)``."""
        if any(norm.training for norm in self._norms) or not bool(x.isfinite().all()):
            outputs: Tensor = self.network(x)
            return outputs
        prepare = getattr(self.network, PREPARE, None)
        inputs = {IMAGES: x if prepare is None else prepare(x)}
        if self._graph.of_statistics:
            inputs[STATISTICS] = torch.cat([each for norm in self._norms for each in _statistics(norm)])
        return torch.from_numpy(self._graph.run({name: _array(each) for name, each in inputs.items()}))


def _statistics(norm: Norm) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var


def _array(tensor: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


class Graph:
    """A graph of ONNX, whose session starts with its first run; copies of networks share it.

    With `of_statistics` the values of BatchNorm, as `TwoStatistics` has them, are an input, else constants.
    """

    def __init__(self, network: EfficientNetLite, of_statistics: bool = False) -> None:
        self.of_statistics = of_statistics
        self._network, self._lock = network, Lock()
        self._session: Any = None

    def __deepcopy__(self, memo: Mapping[int, Any]) -> "Graph":
        return self

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the outputs, float32, for the inputs by name, of float32."""
        with self._lock:
            self._session = self._session or _session(graph_of(self._network, self.of_statistics))
        (outputs,) = self._session.run(None, dict(inputs))
        return np.asarray(outputs)


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
