"""Makes the silo that is started with this folder on its path a curious one.

Besides answering, it asks every other silo of the job for a model, and writes down what it hears.
"""

import importlib.abc
import os
import sys

NAME = "fedegoists.federation.flare.silo_executor"


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module):
            run(module)
            _make_curious(module)

        loader.exec_module = exec_module
        return spec


def _make_curious(module):
    from pathlib import Path

    from nvflare.collab import collab

    answer = module.SiloClient.answer

    def curious(self, caller, message):
        heard = Path(os.environ["SOUTH_HEARS"])
        for other in collab.other_clients:
            path = heard / other.name
            if not path.exists():
                path.write_bytes(other(timeout=20).ask(message))
        return answer(self, caller, message)

    module.SiloClient.answer = curious


sys.meta_path.insert(0, _Finder())
