"""Models of other frameworks, on NumPy arrays: a user writes three functions, and no more.

>>> import numpy as np
>>> class Mean(ArrayModel):
...     def start(self, seed):
...         return {"mean": np.zeros(1)}
...     def fit(self, parameters, x, y, settings, seed):
...         return {"mean": np.array([y.mean()])}
...     def predict(self, parameters, x):
...         return np.full((len(x), 1), parameters["mean"])
>>> ArrayNetwork(Mean(), seed=0)(torch.zeros(2, 3)).shape
torch.Size([2, 1])
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError, shown

Arrays = Mapping[str, npt.NDArray[Any]]


class ArrayModel(ABC):
    """A model of any framework whose parameters are arrays of numbers, such as scikit-learn's.

    Parameters of the same name are averaged by methods such as FedAvg, so their means must make
    sense: coefficients do, the splits of a tree do not.
    """

    @abstractmethod
    def start(self, seed: int) -> Arrays:
        """Return the named parameters with which training starts."""

    @abstractmethod
    def fit(self, parameters: Arrays, x: Any, y: Any, settings: Any, seed: int) -> Arrays:
        """Return the parameters after training from some on a silo's training samples.

        Parameters
        ----------
        x, y : array
            Inputs and targets; for data with several inputs, x is a tuple of arrays.
        settings : TrainSettings
            Such as ``steps``, ``batch_size``, ``learning_rate`` and ``weight_decay``.
        """

    @abstractmethod
    def predict(self, parameters: Arrays, x: Any) -> npt.NDArray[Any]:
        """Return the outputs, a row for each sample.

        One column with the logit of the second class in a binary task; one for each class in a
        classification; one with the number in a regression.
        """


class ArrayNetwork(nn.Module):
    """An `ArrayModel` as a module: with parameters, without gradients.

    Parameters
    ----------
    model : ArrayModel
        The model.
    seed : int
        With which it starts.
    """

    def __init__(self, model: ArrayModel, seed: int) -> None:
        super().__init__()
        self.arrays = model
        for name, value in self.starting(seed).items():
            if not str(name).isidentifier() or hasattr(self, name):
                raise SettingsError(
                    f"start names a parameter {shown(name)}; expected a word such as coefficients"
                )
            self.register_parameter(name, nn.Parameter(value))

    def starting(self, seed: int) -> dict[str, Tensor]:
        """Return the parameters with which training starts.

        Raises
        ------
        SettingsError
            If they are not named arrays of numbers.
        """
        started = self.arrays.start(seed)
        if not isinstance(started, Mapping) or not started:
            raise SettingsError(
                f"start returned {shown(started)}; expected a dictionary of names and arrays"
            )
        return {name: _tensor(value, f"start, {name}") for name, value in started.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(name for name, _ in self.named_parameters())

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs for some inputs."""
        outputs = self.arrays.predict(self.current(), arrays_of(inputs))
        return _tensor(outputs, "predict").to(inputs[0].device)

    def current(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters as arrays of 64-bit floats."""
        return as_arrays({name: getattr(self, name) for name in self._parameters})

    def fitted(
        self, parameters: Mapping[str, Tensor], inputs: Any, targets: Any, settings: Any, seed: int
    ) -> dict[str, Tensor]:
        """Return the parameters after training from some.

        Raises
        ------
        SettingsError
            If ``fit`` returns other parameters than ``start`` did.
        """
        found = self.arrays.fit(as_arrays(parameters), inputs, targets, settings, seed)
        if not isinstance(found, Mapping) or found.keys() != parameters.keys():
            given = ", ".join(map(str, found)) if isinstance(found, Mapping) else shown(found)
            raise SettingsError(f"fit returned {given}; expected {', '.join(parameters)}")
        tensors = {name: _tensor(found[name], f"fit, {name}") for name in parameters}
        for name, own in tensors.items():
            if own.shape != parameters[name].shape:
                raise SettingsError(
                    f"fit returned {name} of the shape {tuple(own.shape)}; it started with "
                    f"{tuple(parameters[name].shape)}"
                )
        return tensors


def as_arrays(parameters: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of tensors as arrays of 64-bit floats."""
    return {name: own.detach().double().cpu().numpy().copy() for name, own in parameters.items()}


def arrays_of(inputs: tuple[Tensor, ...]) -> Any:
    """Return inputs as arrays: one array, or a tuple where there are several inputs."""
    found = tuple(one.detach().cpu().numpy() for one in inputs)
    return found[0] if len(found) == 1 else found


def _tensor(value: object, where: str) -> Tensor:
    try:
        array = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{where}: expected an array of numbers ({error})") from None
    return torch.from_numpy(np.ascontiguousarray(array))
