//! The dialect: that of PostgreSQL, with two differences from the one that the parser has.
//!
//! Arguments are not named by expressions. To find such names, the parser reads each argument of a
//! function twice, and so an argument of nested calls twice for each level.
//!
//! `a IS DISTINCT FROM b AND c` has the condition `c`. The parser would compare `a` with `b AND c`.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The dialect of all statements.
#[derive(Debug)]
pub(crate) struct SqlDialect;

/// The parser's own.
const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

macro_rules! as_in_postgres {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            POSTGRES.$name()
        })*
    };
}

impl Dialect for SqlDialect {
    fn dialect(&self) -> TypeId {
        POSTGRES.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, word: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(word)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        // A sign after an operator is that of a number: `a>-1`.
        POSTGRES.is_custom_operator_part(ch) && !matches!(ch, '-' | '+')
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        POSTGRES.get_next_precedence(parser)
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        let is_negated = parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]);
        if !is_negated && !parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            return None;
        }
        let other = parser.parse_subexpr(self.prec_value(Precedence::Is));
        let sides = other.map(|other| (Box::new(expr.clone()), Box::new(other)));
        Some(sides.map(|(left, right)| match is_negated {
            true => Expr::IsNotDistinctFrom(left, right),
            false => Expr::IsDistinctFrom(left, right),
        }))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        POSTGRES.prec_value(precedence)
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_in_postgres!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_comment_optimizer_hint,
    );
}
