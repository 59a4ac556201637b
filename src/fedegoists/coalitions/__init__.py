"""The decision who trains with whom, its proof and its explanation."""

from fedegoists.coalitions.formation import METHODS, Formation, Merge, Method, form
from fedegoists.coalitions.principles import Verification, verify
