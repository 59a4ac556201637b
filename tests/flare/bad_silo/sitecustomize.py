"""Changes the software of a silo that is started with this folder on its path.

The file ``poison`` in its kit names one of `tests.poisons.POISONS`; each job reads it anew.
"""

import importlib.abc
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
            from tests.flare.poisoned_silos import chosen_service

            module.SiloService = chosen_service

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
