"""Reads one type of a graph at one state for the data source ``omnigraph``.

The state is resolved and pinned when the frame is created; workers open only that version.
Spark has fewer types than the schema: a U32 is a long, a U64 a ``decimal(20,0)``, a DateTime a
timestamp, a Vector an array of floats, a Blob binary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.commit.history import SnapshotRef
from omnigraph.errors import InputError, InternalError, LanguageError, ValueConversionError
from omnigraph.lang.query import typed
from omnigraph.lang.schema.catalog import Catalog, EntityType
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.plan import Expect, MutationPlan, compile_query
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.bind import bind
from omnigraph.records import dataclass
from omnigraph.spark.session.opening import Opened
from omnigraph.storage.tables.fragments import (
    TableLocator,
    fragment_groups,
    locate_table,
    open_version,
    report_removed_version,
)
from omnigraph.storage.tables.table import Table
from omnigraph.write.conform import find_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ROWS_IN_PARTITION = 500_000


@dataclass(frozen=True, slots=True)
class TypeScan:
    """A planned scan. Pickled for other processes."""

    name: str
    locator: TableLocator
    wanted: pa.Schema
    """The columns in Spark's types."""
    condition: typed.TypedExpr | None
    groups: tuple[tuple[int, ...], ...]
    """The fragments of each partition."""

    def read(self, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        with report_removed_version(self.locator):
            table = open_version(self.locator)
            for batch in rows_of(table, self.wanted.names, self.condition, fragments):
                if batch.num_rows:
                    columns = [self._column(batch[field.name], field) for field in self.wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            column = to_timestamp(column)
            return column if column.type == field.type else column.cast(field.type)
        except pa.ArrowInvalid:
            raise ValueConversionError(
                f"{self.name}.{field.name} holds values that Spark cannot",
                hint="leave the column out, with the option columns",
                details={"property": field.name},
            ) from None


def rows_of(
    table: Table, names: Sequence[str], condition: typed.TypedExpr | None, fragments: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Columns of the rows that match a condition; what storage cannot evaluate is filtered here."""
    if condition is None or pushable(condition):
        pushed = None if condition is None else filter_expression(condition)
        yield from table.whole_rows(names, pushed, fragments)
        return
    extra = [part.name for part in typed.walk(condition) if isinstance(part, typed.Column)]
    for batch in table.whole_rows(list(dict.fromkeys((*names, *extra))), None, fragments):
        kept = pa.Table.from_batches([batch]).filter(filter_expression(condition))
        yield from kept.select(list(names)).combine_chunks().to_batches()


def plan_scan(
    graph: Opened,
    type_name: str,
    ref: SnapshotRef,
    columns: Sequence[str] | None = None,
    condition: str | None = None,
    partitions: int | None = None,
) -> tuple[TypeScan, StructType]:
    """Resolve type, state and columns of a scan, and divide it into partitions."""
    from pyspark.sql.pandas.types import to_arrow_schema

    snapshot = ref.resolve(graph.store)
    catalog = graph.catalog_at(snapshot)
    entity_type = find_type(catalog, type_name)
    schema = entity_type.arrow_schema()
    names = list(schema.names) if columns is None else list(columns)
    for name in names:
        if name not in schema.names or names.count(name) > 1:
            said = "no column" if name not in schema.names else "only one column"
            raise InputError(
                f"{entity_type.name} has {said} '{name}'", hint=f"it has {', '.join(schema.names)}"
            )
    if not names:
        raise InputError("no column is selected", hint=f"there are {', '.join(schema.names)}")
    pin = snapshot.pin(entity_type.table_key)
    if pin is None:
        raise InputError(f"'{entity_type.name}' did not exist at that time")
    table = graph.store.table(pin)
    rows = ROWS_IN_PARTITION if partitions is None else -(-pin.row_count // partitions)
    struct = _struct(schema, names)
    scan = TypeScan(
        entity_type.name,
        locate_table(graph.store.datasets, table),
        to_arrow_schema(struct, timezone="UTC"),
        None if condition is None else condition_of(catalog, entity_type, condition),
        tuple(fragment_groups(table.fragments(), rows)),
    )
    return scan, struct


def condition_of(catalog: Catalog, entity_type: EntityType, text: str) -> typed.TypedExpr:
    """Compile a condition on the properties of a type, in the syntax of ``where`` in a mutation."""
    source = f"query filter() {{ delete {entity_type.name} where\n{text}\n}}"
    try:
        plan = compile_query(catalog, source, expect=Expect.MUTATION)
    except LanguageError as error:
        # The position would refer to the generated text.
        raise InputError(
            f"the filter '{text}': {error.diagnostics[0].text}", hint=error.hint
        ) from None
    if not isinstance(plan, MutationPlan):
        raise InternalError("a condition compiled to something else")
    if len(plan.statements) != 1 or plan.params:
        raise InputError(f"the filter is more than a condition: {text}")
    (statement,) = bind(plan, {}).statements
    if statement.where is None:
        raise InternalError("a condition was lost")
    return statement.where


def _struct(schema: pa.Schema, names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    fields = [schema.field(name) for name in names]
    return StructType(
        [StructField(field.name, _spark_type(field.type), field.nullable) for field in fields]
    )


def _spark_type(given: pa.DataType) -> DataType:
    from pyspark.sql import types

    if pa.types.is_list(given) or pa.types.is_fixed_size_list(given):
        return types.ArrayType(_spark_type(given.value_type), True)
    plain: dict[pa.DataType, Any] = {
        pa.string(): types.StringType,
        pa.bool_(): types.BooleanType,
        pa.int32(): types.IntegerType,
        pa.int64(): types.LongType,
        pa.uint32(): types.LongType,
        pa.float32(): types.FloatType,
        pa.float64(): types.DoubleType,
        pa.date32(): types.DateType,
        pa.date64(): types.TimestampType,
        pa.large_binary(): types.BinaryType,
    }
    spark_type: DataType = types.DecimalType(20, 0) if given == pa.uint64() else plain[given]()
    return spark_type
