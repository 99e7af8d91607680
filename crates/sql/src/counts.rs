//! `count`, whose distinct texts of many groups take little memory.
//!
//! DataFusion has a table of 8 KiB or more for the texts of each group, so a few thousand groups
//! are beyond the memory of a query. Here all groups share one table of texts, and count their
//! numbers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, BooleanArray, ListArray, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{and, cast, filter, is_not_null};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// The function `count`.
pub(crate) fn count() -> AggregateUDF {
    AggregateUDF::new_from_impl(FrugalCount(Count::new()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FrugalCount(Count);

/// Whether distinct texts are counted, or distinct bytes.
fn counts_texts(args: &AccumulatorArgs) -> bool {
    use DataType as T;
    let is_text = |field: &FieldRef| {
        matches!(field.data_type(), T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView)
    };
    args.is_distinct && matches!(args.expr_fields, [field] if is_text(field))
}

impl AggregateUDFImpl for FrugalCount {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        counts_texts(&args) || self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !counts_texts(&args) {
            return self.0.create_groups_accumulator(args);
        }
        let data_type = args.expr_fields[0].data_type().clone();
        let numbers = [Arc::new(Field::new(args.expr_fields[0].name(), DataType::UInt64, true))];
        let counts = self.0.create_groups_accumulator(AccumulatorArgs { expr_fields: &numbers, ..args })?;
        Ok(Box::new(TextCounts { data_type, texts: Texts::default(), counts }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.default_value(data_type)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

/// Numbers for texts.
#[derive(Default)]
struct Texts {
    numbers: HashMap<Arc<[u8]>, u64>,
    texts: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl Texts {
    fn number(&mut self, text: &[u8]) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let (number, text) = (self.texts.len() as u64, Arc::<[u8]>::from(text));
        self.bytes += text.len() + 2 * size_of::<usize>();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The numbers of texts; none for a null.
    fn numbers(&mut self, texts: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(texts, &DataType::LargeBinary)?;
        let texts = texts.as_binary::<i64>();
        Ok(Arc::new(texts.iter().map(|text| text.map(|text| self.number(text))).collect::<UInt64Array>()))
    }

    fn texts(&self, numbers: &UInt64Array, data_type: &DataType) -> Result<ArrayRef> {
        let mut texts = LargeBinaryBuilder::with_capacity(numbers.len(), 0);
        numbers.values().iter().for_each(|&number| texts.append_value(&self.texts[number as usize]));
        Ok(cast(&texts.finish(), data_type)?)
    }

    fn size(&self) -> usize {
        let entry = size_of::<(Arc<[u8]>, u64)>() + 1;
        self.bytes + self.numbers.capacity() * entry + self.texts.capacity() * size_of::<Arc<[u8]>>()
    }
}

/// Counts the distinct texts of groups by their numbers.
struct TextCounts {
    data_type: DataType,
    texts: Texts,
    counts: Box<dyn GroupsAccumulator>,
}

impl TextCounts {
    fn forget(&mut self, emitted: EmitTo) {
        if matches!(emitted, EmitTo::All) {
            self.texts = Texts::default();
        }
    }

    /// Lists of texts, for a state.
    fn lists(&self, offsets: OffsetBuffer<i32>, texts: ArrayRef) -> Result<Vec<ArrayRef>> {
        let field = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, texts, None)?)])
    }
}

impl GroupsAccumulator for TextCounts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.counts.update_batch(&[self.texts.numbers(&values[0])?], groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = self.counts.evaluate(emit_to)?;
        self.forget(emit_to);
        Ok(counts)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let numbers = self.counts.state(emit_to)?;
        let numbers = numbers[0].as_list::<i32>();
        let texts = self.texts.texts(numbers.values().as_primitive::<UInt64Type>(), &self.data_type)?;
        self.forget(emit_to);
        self.lists(numbers.offsets().clone(), texts)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        let texts = states[0].as_list::<i32>();
        let numbers = self.texts.numbers(texts.values())?;
        let field = Arc::new(Field::new_list_field(DataType::UInt64, true));
        let numbers = ListArray::try_new(field, texts.offsets().clone(), numbers, None)?;
        self.counts.merge_batch(&[Arc::new(numbers)], groups, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], condition: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut counts = is_not_null(&values[0])?;
        if let Some(condition) = condition {
            counts = and(&counts, condition)?;
        }
        let lengths = counts.iter().map(|counts| usize::from(counts == Some(true)));
        self.lists(OffsetBuffer::from_lengths(lengths), filter(&values[0], &counts)?)
    }

    fn size(&self) -> usize {
        self.texts.size() + self.counts.size()
    }
}
