"""Data from a user's own function: ``source = "data.py:load"`` beside a ``consortium.toml``.

The file is code that runs with all rights of its user: it is never sent, and a deployed silo runs
it only after its operator has approved it.
"""

import inspect
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedegoists.errors import FedEgoistsError, SettingsError, shown
from fedegoists.learning.data import DataError, SiloedData
from fedegoists.learning.datasets.array_data import load_arrays
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.own import load_own
from fedegoists.learning.datasets.schema import Schema
from fedegoists.learning.own_models import function_in
from fedegoists.learning.typed_settings import validated

KEYS = ("organisations", "task", "classes", "schema", "standardise")
"""What a function may return."""


def load_by_function(
    name: str,
    *,
    folder: str | None = None,
    organisation: str | None = None,
    seed: int = 0,
    **options: object,
) -> SiloedData:
    """Load the data that a function in a file returns.

    Parameters
    ----------
    name : str
        The file and the function, ``path/data.py:load``.
    folder : str, optional
        Given to the function, if it has a parameter ``folder``.
    organisation : str, optional
        At a deployed silo, its organisation; given to the function, if it has a parameter
        ``organisation``, which is None otherwise. The others' data is not needed then.
    seed : int
        Divides the samples.
    **options
        Given to the function.

    Raises
    ------
    SettingsError
        If the file is not as expected, or the function fails.
    DataError
        If what it returns is no data.
    """
    given = {"folder": folder, "organisation": organisation}
    where, returned = returned_by(name, given, options)
    if not isinstance(returned, Mapping) or "organisations" not in returned:
        raise DataError(
            f"{where} returned a {type(returned).__name__}; expected a dictionary with the keys "
            f"{', '.join(KEYS)}, of which organisations must be there"
        )
    unknown = [key for key in returned if key not in KEYS]
    if unknown:
        raise DataError(f"{where} returned the key {shown(unknown[0])}; keys are {', '.join(KEYS)}")
    own = returned["organisations"]
    if organisation is not None:
        own = {organisation: own_part(where, own, organisation)}
    try:
        return _data({**returned, "organisations": own}, seed)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def returned_by(
    name: str, given: Mapping[str, object], options: Mapping[str, object]
) -> tuple[str, object]:
    """Call a user's function; return its name for messages, and what it returned.

    Parameters
    ----------
    name : str
        The file and the function, ``path/data.py:load``.
    given : mapping of str to object
        Arguments that the function gets if it takes them.
    options : mapping of str to object
        Arguments that it must take.
    """
    file, _, function = name.rpartition(":")
    path = Path(file)
    where = f"{path.name}:{function}"
    if not path.is_file():
        raise SettingsError(f"{path}: no such file; it is looked for beside the consortium.toml")
    return where, _called(function_in(path, function), where, path, given, options)


def own_part(where: str, organisations: object, organisation: str) -> object:
    """Return one organisation's data of all that a function returned."""
    if isinstance(organisations, Mapping) and organisation in organisations:
        return organisations[organisation]
    if not isinstance(organisations, Mapping):
        organisations = [type(organisations).__name__]
    known = ", ".join(map(str, organisations))
    raise DataError(f"{where} returned no data of {organisation!r}, but of: {known}")


def _called(
    function: Any,
    where: str,
    path: Path,
    given: Mapping[str, object],
    options: Mapping[str, object],
) -> object:
    """Call a user's function with what it takes."""
    parameters = inspect.signature(function).parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for key in options:
        if key in given or (key not in parameters and not anything):
            takes = ", ".join(parameters) or "nothing"
            raise SettingsError(f"{where} has no option {key!r}; it takes {takes}")
    arguments = {**{key: value for key, value in given.items() if key in parameters}, **options}
    needed = [
        key
        for key, one in parameters.items()
        if one.default is one.empty and key not in arguments
        and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]  # fmt: skip
    if needed:
        raise SettingsError(
            f"{where} needs {needed[0]!r}; it can take organisation, folder, and what options in "
            "[data] give it"
        )
    try:
        returned: object = function(**arguments)
    except FedEgoistsError:
        raise
    except Exception as error:  # it is the user's own code: anything can happen
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__)
                 if Path(one.filename).name == path.name]  # fmt: skip
        at = f" in line {lines[-1]}" if lines else ""
        raise SettingsError(f"{where} raised {type(error).__name__}{at}: {error}") from error
    return returned


def _data(returned: Mapping[str, Any], seed: int) -> SiloedData:
    """Return what a function returned as data: tables or folders with a schema, or arrays."""
    schema = returned.get("schema")
    if schema is None:
        more = {key: returned[key] for key in ("classes", "standardise") if key in returned}
        return load_arrays(returned["organisations"], returned.get("task"), seed=seed, **more)
    beside = [key for key in ("task", "classes", "standardise") if key in returned]
    if beside:
        raise DataError(f"{beside[0]} belongs into the schema, if there is one")
    if isinstance(schema, Mapping):
        kind: type[Schema] | type[ImageSchema] = ImageSchema if "images" in schema else Schema
        schema = validated(kind, schema, "schema")
    return load_own(returned["organisations"], schema, seed=seed)
