"""The codes of all errors in a schema text.

``S0xx`` is about one declaration (reported as a parse error), ``S1xx`` about how declarations
fit together (a catalog error). The codes ``P0xx`` of lexer and parser are shared with the query
language; warnings are in ``lint_codes``. A code never changes its meaning.
"""

from __future__ import annotations

SCHEMA_CODES: dict[str, str] = {
    # what the parser sees
    "S001": "@card not directly after the target type of an edge",
    "S002": "unknown property type",
    "S003": "vector dimension is zero",
    "S004": "vector dimension is too large",
    "S005": "list of Blob",
    "S006": "list of something that cannot be in a list",
    "S007": "enum value given twice",
    "S008": "cardinality minimum exceeds its maximum",
    "S009": "@key, @unique or @index with something that is not a property name",
    "S010": "@range without a property name and bounds",
    "S011": "@check without a property name and a pattern",
    "S012": "@range bound does not fit 64 bits",
    "S013": "something in an interface that only nodes can have",
    "S014": "annotation keyword given twice",
    "S015": "text that is not valid Unicode",
    # annotations
    "S020": "constraint annotation on a node header",
    "S021": "constraint annotation on an edge header",
    "S022": "@description or @instruction given twice",
    "S023": "@description or @instruction without text",
    "S024": "@instruction on a property",
    "S025": "annotation that a list, vector or blob property cannot have",
    "S026": "@key or @embed on an edge property",
    "S027": "annotation given twice",
    "S028": "@rename_from without a name",
    "S029": "@embed on a property that is not a Vector",
    "S030": "@embed without a source property",
    "S031": "@embed with an unknown source property",
    "S032": "@embed source is not a String",
    "S033": "@embed with an unknown keyword",
    "S034": "@vector with a metric, a method or a number that there is not",
    # constraints and properties
    "S040": "several keys on one node type",
    "S041": "constraint on an unknown property",
    "S042": "nullable key property",
    "S043": "@range on a property that is not numeric",
    "S044": "@check on a property that is not a String",
    "S045": "constraint that edges do not have",
    "S046": "key on a list, vector or blob",
    "S047": "@unique on a list, vector or blob",
    "S048": "@index on a blob",
    "S049": "property named twice in one constraint",
    "S050": "reserved property name",
    "S051": "unknown interface",
    "S052": "property type contradicts the interface",
    # how declarations fit together
    "S101": "node type declared twice",
    "S102": "edge type declared twice",
    "S103": "interface declared twice",
    "S104": "edge between unknown types",
    "S105": "edge names equal after case folding",
    "S106": "type ids collide",
    "S107": "property ids collide",
    "S108": "property declared twice",
}
