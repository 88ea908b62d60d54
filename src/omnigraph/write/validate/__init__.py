"""The validator of all writers: a write that it refuses is never published."""

from omnigraph.write.validate.finder import InMemoryKeys, Keys
from omnigraph.write.validate.group_state import GroupState
from omnigraph.write.validate.rules import Violation
from omnigraph.write.validate.validator import Judgement, Validator, key_columns

__all__ = [
    "GroupState",
    "InMemoryKeys",
    "Judgement",
    "Keys",
    "Validator",
    "Violation",
    "key_columns",
]
