"""Safe reading of NPZ files that may be damaged or hostile."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.learning.data import DataError

_DAMAGES = (
    *(OSError, ValueError, EOFError, KeyError, SyntaxError, MemoryError),
    # RuntimeError: encrypted files, and compression methods that Python does not know.
    *(RuntimeError, zipfile.BadZipFile, zlib.error, struct.error),
)


@contextmanager
def opened_npz(path: Path, where: str) -> Iterator[NpzFile]:
    """Context manager with an NPZ file; arrays are read on demand, and pickles in it are refused.

    Errors begin with `where`; a `DataError` for damage may also come while arrays are read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{where}: cannot be read ({error.strerror})") from None
    with file:
        try:
            # Given the file and not its name, numpy leaves nothing open if it fails.
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise DataError(f"{where}: a single array, not an NPZ file; use numpy.savez")
            with arrays:
                yield arrays
        except FedEgoistsError:
            raise
        except _DAMAGES as error:
            raise DataError(f"{where}: not an NPZ file that can be read ({error})") from None
