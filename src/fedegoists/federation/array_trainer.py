"""The trainer of models on NumPy arrays, such as those of scikit-learn."""

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.module_trainer import ModuleTrainer
from fedegoists.federation.replies import Gradients, Trained
from fedegoists.federation.requests import Gradient, Train
from fedegoists.federation.silo_operations import Silo
from fedegoists.learning.array_models import ArrayNetwork, arrays_of
from fedegoists.learning.network import Network

NO_STEPS = (
    "this model is trained by its own function fit, not by steps of gradient descent: nothing can "
    "be added to its gradients, and it has none to show"
)


class ArrayTrainer(ModuleTrainer):
    """Trains and evaluates an `ArrayModel` on one silo's samples; see `Trainer`."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        assert isinstance(network.model, ArrayNetwork)
        self._module = network.model

    def train(self, silo: Silo, request: Train, seed: int) -> Trained:
        """Train from the given parameters on the silo's training samples."""
        settings, terms, schema = request.settings, request.terms, self.schema
        if settings.clip is not None or settings.noise:
            raise SettingsError(f"{NO_STEPS}; privacy needs a PyTorch module")
        if terms is not None and (set(terms.tensors) - {"momentum"} or terms.representation):
            raise SettingsError(NO_STEPS)
        if settings.class_weights is not None:
            raise SettingsError(f"{NO_STEPS}; set the weights of classes in fit")
        if settings.sam_radius:
            raise SettingsError(f"{NO_STEPS}; leave out sam_radius")
        if silo.weights is not None:
            raise SettingsError("a model on arrays takes no weights of samples; leave them out")
        rows = silo.splits["train"]
        inputs, targets = silo.batch(rows)
        found = self._module.fitted(
            schema.unflatten(request.parameters),
            arrays_of(inputs),
            targets.cpu().numpy(),
            settings,
            stream_seed(seed, "fit") % 2**32,
        )
        vector = schema.flatten(found).to(request.parameters)
        outputs, _ = self._outputs(silo, vector, rows)
        momentum = None if terms is None or terms.momentum is None else terms.momentum
        return Trained(
            parameters=vector,
            loss=self.task.loss(outputs, targets).item(),
            samples=len(rows),
            sample_passes=settings.sample_passes(len(rows)),
            momentum=None if momentum is None else momentum.new_zeros(momentum.shape),
        )

    def gradients(self, silo: Silo, request: Gradient, seed: int) -> Gradients:  # noqa: ARG002
        """Refuse: the model has no gradients."""
        raise SettingsError(NO_STEPS)
