//! `matches(text, words)`: whether a text has all words of another, as the engine's condition of
//! the same name judges it.

use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_schema::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use terrane::condition::RequiredWords;

/// The function as an expression's callee.
pub(crate) fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(MatchesFunction { signature: Signature::user_defined(Volatility::Immutable) }))
}

/// The function `matches`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchesFunction {
    signature: Signature,
}

impl ScalarUDFImpl for MatchesFunction {
    fn name(&self) -> &'static str {
        "matches"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |found: &DataType| found.is_string() || found.is_null();
        match found {
            [text, words] if is_text(text) && is_text(words) => Ok(vec![DataType::Utf8; 2]),
            _ => plan_err!("matches takes a text and the words to find in it: matches(name, 'old bridge')"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, words] = args.args.as_slice() else { return exec_err!("matches has two arguments") };
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let texts = texts.to_array(rows)?;
        let texts = texts.as_string::<i32>();
        let found = match words {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(words))) => {
                let words = required(words)?;
                (0..rows).map(|row| texts.is_valid(row).then(|| words.all_in(texts.value(row)))).collect()
            }
            ColumnarValue::Scalar(_) => arrow_array::BooleanArray::new_null(rows),
            ColumnarValue::Array(words) => of_each_row(texts, words.as_string::<i32>())?,
        };
        let found: ArrayRef = Arc::new(found);
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
            false => Ok(ColumnarValue::Array(found)),
        }
    }
}

fn of_each_row(texts: &StringArray, words: &StringArray) -> Result<arrow_array::BooleanArray> {
    let mut builder = BooleanBuilder::with_capacity(texts.len());
    for row in 0..texts.len() {
        match texts.is_valid(row) && words.is_valid(row) {
            true => builder.append_value(required(words.value(row))?.all_in(texts.value(row))),
            false => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

fn required(text: &str) -> Result<RequiredWords> {
    let words = RequiredWords::of(text);
    match words.is_empty() {
        true => exec_err!("matches: there is no word in {:?}", text.chars().take(40).collect::<String>()),
        false => Ok(words),
    }
}
