/* mt.y - the grammar of .mt (docs/language.md): tokens in, the tree of ast.h out.
 *
 * LALR(1) without conflicts and blind to newlines: a statement never starts with `(`, `[` or `-`.
 * Errors are reported by parse_error.c; `error` at the level of items, members, statements, entries
 * and wraps, with parse_sync, finds the next unit, so that one run reports many errors. */
%define api.pure full
%define api.prefix {mt_yy}
%define api.token.prefix {T_}
%define api.location.type {Loc}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {Parse *p}
%initial-action { @$ = (Loc){p->source, 1, 1, 0}; }

%code requires {
#include "frontend/parse.h"
}
%code {
/* Depth of nesting that is accepted: blocks and brackets here, expressions in parse.c. */
#define YYMAXDEPTH 3000
#define YYLLOC_DEFAULT(cur, rhs, n)                                                 \
  ((cur) = (n) ? loc_span(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                       \
               : (Loc){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).line,                \
                       YYRHSLOC(rhs, 0).col + YYRHSLOC(rhs, 0).len, 0})
#define mt_yylex parse_lex

static void mt_yyerror(const Loc *at, Parse *p, const char *message);

#define NEW(type) arena_new_of(p->arena, type)
/* A list with one item; a list with one more. */
#define ONE(type, list, item) ((list) = NEW(type), ADD(list, item))
#define ADD(list, item) vec_push(p->arena, (list), (item))
/* Moves a list of the parser's into a node's; both are VECs of the same type. */
#define TAKE(to, list) ((to).at = (list)->at, (to).n = (list)->n, (to).cap = (list)->cap)
#define TAKE_OPT(to, list) ((list) ? (void)TAKE(to, list) : (void)0)
#define NAME(t, l) ((Name){(t), (l)})

#define BINARY(op, l, a, b, all) parse_expr(p, EX_BINARY, (all), (l), (op), (a), (b), NULL)
#define SYNC(level, at)                          \
  do {                                           \
    parse_sync(p, (level), (at));                \
    yyclearin;                                   \
    yyerrok;                                     \
    if (diag_full(p->diags) || p->fatal) YYABORT; \
  } while (0)

static Item *item_new(Parse *p, ItemKind kind, Loc loc, Name name) {
  Item *it = NEW(Item);
  it->kind = kind, it->loc = loc, it->name = name;
  return it;
}
static Item *section_new(Parse *p, Loc loc, Name key, Name name, bool is_string, EntryList *body) {
  Item *it = item_new(p, IT_SECTION, loc, name);
  it->key = key, it->name_is_string = is_string;
  TAKE_OPT(it->entries, body);
  return it;
}
static Member *member_new(Parse *p, MemberKind kind, Loc loc, Name name, Expr *value) {
  Member *m = NEW(Member);
  m->kind = kind, m->loc = loc, m->name = name, m->value = value;
  return m;
}
static Member *layer_new(Parse *p, Loc loc, Name name, Name index, Expr *from, Expr *to,
                         Expr *value) {
  Member *m = member_new(p, ME_LAYER, loc, name, value);
  m->index = index, m->from = from, m->to = to;
  return m;
}
static Stmt *stmt_new(Parse *p, StmtKind kind, Loc loc, Expr *value) {
  Stmt *s = NEW(Stmt);
  s->kind = kind, s->loc = loc, s->value = value;
  return s;
}
static Entry *entry_new(Parse *p, EntryKind kind, Loc loc, Name key, NameList *patterns,
                        EntryList *body, Expr *value) {
  Entry *e = NEW(Entry);
  e->kind = kind, e->loc = loc, e->key = key, e->value = value;
  TAKE_OPT(e->patterns, patterns);
  TAKE_OPT(e->body, body);
  return e;
}
}

%union {
  const char *text;
  Expr *expr;
  ExprList *exprs;
  TypeExpr *type;
  TypeList *types;
  Arg arg;
  ArgList *args;
  FnArg fn_arg;
  FnArgList *fn_args;
  Index index;
  IndexList *indices;
  Formal formal;
  FormalList *formals;
  Wrap wrap;
  WrapList *wraps;
  Name name;
  NameList *names;
  Stmt *stmt;
  StmtList *stmts;
  Member *member;
  MemberList *members;
  Entry *entry;
  EntryList *entries;
  Item *item;
  Fn *fn;
  struct { Expr *from, *to; } range;
}

%token <text> NAME "name" NUMBER "number" SIZE "size" STRING "string" LITERAL "literal"
%token <text> DTYPE "dtype"
%token MT "mt" USE "use" AS "as" BLOCK "block" MODEL "model" FN "fn" PARAM "param" STATE "state"
%token LAYER "layer" LET "let" REQUIRE "require" PRESET "preset" IF "if" ELSE "else" FOR "for"
%token IN "in" RETURN "return" WRAP "wrap" WITH "with" AND "and" OR "or" NOT "not"
%token ARROW "->" DOTS ".." SET ":=" POW "**" EQ "==" NE "!=" LE "<=" GE ">="
%token END 0 "end of file"

%nterm <item> item
%nterm <names> names targets patterns
%nterm <wraps> derive wraps
%nterm <wrap> wrap
%nterm <formals> formals_opt formals
%nterm <formal> formal
%nterm <members> members
%nterm <member> member
%nterm <expr> init_opt expr postfix primary dim
%nterm <exprs> exprs dims
%nterm <fn> fn
%nterm <fn_args> fn_args_opt fn_args
%nterm <fn_arg> fn_arg
%nterm <types> returns_opt returns
%nterm <type> type
%nterm <stmts> stmts
%nterm <stmt> stmt if_stmt
%nterm <range> iter
%nterm <entries> entries
%nterm <entry> entry
%nterm <args> args_opt args
%nterm <arg> arg
%nterm <indices> indices
%nterm <index> index

%right '?' ':'
%left OR
%left AND
%precedence NOT
%nonassoc EQ NE '<' '>' LE GE
%left '+' '-'
%left '*' '/' '%' '@'
%precedence UMINUS
%right POW
%precedence AS
%%
file: version items;

version:
    %empty
  | MT NUMBER { parse_version(p, @2, $2); };

items:
    %empty
  | items item { if ($2) vec_push(p->arena, &p->file->items, $2); };

item:
    USE STRING {
      $$ = item_new(p, IT_USE, @$, NAME(NULL, @2));
      $$->key = NAME($2, @2);
    }
  | USE STRING '(' names ')' {
      $$ = item_new(p, IT_USE, @$, NAME(NULL, @2));
      $$->key = NAME($2, @2);
      TAKE($$->names, $4);
    }
  | LET NAME '=' expr {
      $$ = item_new(p, IT_LET, @$, NAME($2, @2));
      $$->value = $4;
    }
  | fn {
      $$ = item_new(p, IT_FN, @$, $1->name);
      $$->fn = $1;
    }
  | BLOCK NAME '(' formals_opt ')' '{' members '}' {
      $$ = item_new(p, IT_BLOCK, @$, NAME($2, @2));
      TAKE_OPT($$->formals, $4);
      TAKE_OPT($$->members, $7);
    }
  | MODEL NAME '(' formals_opt ')' '{' members '}' {
      $$ = item_new(p, IT_MODEL, @$, NAME($2, @2));
      TAKE_OPT($$->formals, $4);
      TAKE_OPT($$->members, $7);
    }
  | MODEL NAME '=' expr derive {
      $$ = item_new(p, IT_DERIVE, @$, NAME($2, @2));
      $$->value = $4;
      TAKE_OPT($$->wraps, $5);
    }
  | NAME '{' entries '}' { $$ = section_new(p, @$, NAME($1, @1), NAME(NULL, @1), false, $3); }
  | NAME NAME '{' entries '}' {
      $$ = section_new(p, @$, NAME($1, @1), NAME($2, @2), false, $4);
    }
  | NAME STRING '{' entries '}' {
      $$ = section_new(p, @$, NAME($1, @1), NAME($2, @2), true, $4);
    }
  | NAME NAME '=' expr {
      $$ = item_new(p, IT_BIND, @$, NAME($2, @2));
      $$->key = NAME($1, @1);
      $$->value = $4;
    }
  | error { $$ = NULL; SYNC(LEVEL_ITEM, @1); };

names:
    NAME { ONE(NameList, $$, NAME($1, @1)); }
  | names ',' NAME { $$ = $1, ADD($$, NAME($3, @3)); };

patterns:
    STRING { ONE(NameList, $$, NAME($1, @1)); }
  | patterns ',' STRING { $$ = $1, ADD($$, NAME($3, @3)); };

derive:
    %empty { $$ = NULL; }
  | '{' wraps '}' { $$ = $2; };

wraps:
    %empty { $$ = NEW(WrapList); }
  | wraps wrap { $$ = $1; if ($2.with) ADD($$, $2); };

wrap:
    WRAP patterns WITH expr {
      $$ = (Wrap){.with = $4, .loc = @$};
      TAKE($$.patterns, $2);
    }
  | error { $$ = (Wrap){0}; SYNC(LEVEL_WRAP, @1); };

formals_opt:
    %empty { $$ = NULL; }
  | formals;

formals:
    formal { ONE(FormalList, $$, $1); }
  | formals ',' formal { $$ = $1, ADD($$, $3); };

formal:
    NAME { $$ = (Formal){NAME($1, @1), @$, false, NULL}; }
  | NAME ':' LAYER { $$ = (Formal){NAME($1, @1), @$, true, NULL}; }
  | NAME '=' expr { $$ = (Formal){NAME($1, @1), @$, false, $3}; };

members:
    %empty { $$ = NEW(MemberList); }
  | members member { $$ = $1; if ($2) ADD($$, $2); };

member:
    PARAM NAME type init_opt {
      $$ = member_new(p, ME_PARAM, @$, NAME($2, @2), $4);
      $$->type = $3;
    }
  | STATE NAME type init_opt {
      $$ = member_new(p, ME_STATE, @$, NAME($2, @2), $4);
      $$->type = $3;
    }
  | LAYER NAME '=' expr { $$ = member_new(p, ME_LAYER, @$, NAME($2, @2), $4); }
  | LAYER NAME '[' expr ']' '=' expr {
      $$ = layer_new(p, @$, NAME($2, @2), NAME(NULL, @4), NULL, $4, $7);
    }
  | LAYER NAME '[' NAME IN expr ".." expr ']' '=' expr {
      $$ = layer_new(p, @$, NAME($2, @2), NAME($4, @4), $6, $8, $11);
    }
  | LET NAME '=' expr { $$ = member_new(p, ME_LET, @$, NAME($2, @2), $4); }
  | REQUIRE expr { $$ = member_new(p, ME_REQUIRE, @$, NAME(NULL, @1), $2); }
  | REQUIRE expr ',' STRING {
      $$ = member_new(p, ME_REQUIRE, @$, NAME(NULL, @1), $2);
      $$->message = $4;
    }
  | PRESET NAME '{' entries '}' {
      $$ = member_new(p, ME_PRESET, @$, NAME($2, @2), NULL);
      TAKE($$->entries, $4);
    }
  | IF expr '{' members '}' {
      $$ = member_new(p, ME_IF, @$, NAME(NULL, @1), $2);
      TAKE($$->body, $4);
    }
  | IF expr '{' members '}' ELSE '{' members '}' {
      $$ = member_new(p, ME_IF, @$, NAME(NULL, @1), $2);
      $$->has_else = true;
      TAKE($$->body, $4);
      TAKE($$->other, $8);
    }
  | fn {
      $$ = member_new(p, ME_FN, @$, $1->name, NULL);
      $$->fn = $1;
    }
  | error { $$ = NULL; SYNC(LEVEL_MEMBER, @1); };

init_opt:
    %empty { $$ = NULL; }
  | '=' expr { $$ = $2; };

fn: FN NAME '(' fn_args_opt ')' returns_opt '{' stmts '}' {
      $$ = NEW(Fn);
      $$->name = NAME($2, @2), $$->loc = @$;
      TAKE_OPT($$->args, $4);
      TAKE_OPT($$->returns, $6);
      TAKE($$->body, $8);
    };

fn_args_opt:
    %empty { $$ = NULL; }
  | fn_args;

fn_args:
    fn_arg { ONE(FnArgList, $$, $1); }
  | fn_args ',' fn_arg { $$ = $1, ADD($$, $3); };

fn_arg:
    NAME { $$ = (FnArg){NAME($1, @1), @$, NULL, NULL}; }
  | NAME type { $$ = (FnArg){NAME($1, @1), @$, $2, NULL}; }
  | NAME '=' expr { $$ = (FnArg){NAME($1, @1), @$, NULL, $3}; };

returns_opt:
    %empty { $$ = NULL; }
  | "->" returns { $$ = $2; };

returns:
    type { ONE(TypeList, $$, $1); }
  | returns ',' type { $$ = $1, ADD($$, $3); };

type:
    '[' dims ']' { $$ = parse_type(p, @$, NULL, $2); }
  | DTYPE '[' dims ']' { $$ = parse_type(p, @$, $1, $3); }
  | DTYPE { $$ = parse_type(p, @$, $1, NULL); };

dims:
    dim { ONE(ExprList, $$, $1); }
  | dims ',' dim { $$ = $1, ADD($$, $3); };

dim:
    expr
  | ".." { $$ = NULL; };

stmts:
    %empty { $$ = NEW(StmtList); }
  | stmts stmt { $$ = $1; if ($2) ADD($$, $2); };

stmt:
    targets '=' expr {
      $$ = stmt_new(p, ST_SET, @$, $3);
      TAKE($$->targets, $1);
    }
  | NAME ":=" expr {
      $$ = stmt_new(p, ST_UPDATE, @$, $3);
      ADD(&$$->targets, NAME($1, @1));
    }
  | FOR targets IN iter '{' stmts '}' {
      $$ = stmt_new(p, ST_FOR, @$, $4.from);
      $$->to = $4.to;
      TAKE($$->targets, $2);
      TAKE($$->body, $6);
    }
  | if_stmt
  | RETURN exprs {
      $$ = stmt_new(p, ST_RETURN, @$, NULL);
      TAKE($$->results, $2);
    }
  | error { $$ = NULL; SYNC(LEVEL_STMT, @1); };

if_stmt:
    IF expr '{' stmts '}' {
      $$ = stmt_new(p, ST_IF, @$, $2);
      TAKE($$->body, $4);
    }
  | IF expr '{' stmts '}' ELSE '{' stmts '}' {
      $$ = stmt_new(p, ST_IF, @$, $2);
      $$->has_else = true;
      TAKE($$->body, $4);
      TAKE($$->other, $8);
    }
  | IF expr '{' stmts '}' ELSE if_stmt {
      $$ = stmt_new(p, ST_IF, @$, $2);
      $$->has_else = $$->else_if = true;
      TAKE($$->body, $4);
      ADD(&$$->other, $7);
    };

targets:
    NAME { ONE(NameList, $$, NAME($1, @1)); }
  | targets ',' NAME { $$ = $1, ADD($$, NAME($3, @3)); };

iter:
    expr { $$.from = $1, $$.to = NULL; }
  | expr ".." expr { $$.from = $1, $$.to = $3; };

entries:
    %empty { $$ = NEW(EntryList); }
  | entries entry { $$ = $1; if ($2) ADD($$, $2); };

entry:
    NAME '=' expr { $$ = entry_new(p, EN_SET, @$, NAME($1, @1), NULL, NULL, $3); }
  | patterns '=' expr { $$ = entry_new(p, EN_SET_PATTERN, @$, NAME(NULL, @1), $1, NULL, $3); }
  | NAME '{' entries '}' { $$ = entry_new(p, EN_SECTION, @$, NAME($1, @1), NULL, $3, NULL); }
  | NAME NAME '{' entries '}' {
      $$ = entry_new(p, EN_SECTION, @$, NAME($1, @1), NULL, $4, NULL);
      $$->name = NAME($2, @2);
    }
  | NAME patterns '{' entries '}' {
      $$ = entry_new(p, EN_SECTION, @$, NAME($1, @1), $2, $4, NULL);
    }
  | NAME patterns { $$ = entry_new(p, EN_DO, @$, NAME($1, @1), $2, NULL, NULL); }
  | error { $$ = NULL; SYNC(LEVEL_ENTRY, @1); };

exprs:
    expr { ONE(ExprList, $$, $1); }
  | exprs ',' expr { $$ = $1, ADD($$, $3); };

expr:
    postfix
  | expr '+' expr { $$ = BINARY('+', @2, $1, $3, @$); }
  | expr '-' expr { $$ = BINARY('-', @2, $1, $3, @$); }
  | expr '*' expr { $$ = BINARY('*', @2, $1, $3, @$); }
  | expr '/' expr { $$ = BINARY('/', @2, $1, $3, @$); }
  | expr '%' expr { $$ = BINARY('%', @2, $1, $3, @$); }
  | expr '@' expr { $$ = BINARY('@', @2, $1, $3, @$); }
  | expr '<' expr { $$ = BINARY('<', @2, $1, $3, @$); }
  | expr '>' expr { $$ = BINARY('>', @2, $1, $3, @$); }
  | expr "**" expr { $$ = BINARY(OPR_POW, @2, $1, $3, @$); }
  | expr "==" expr { $$ = BINARY(OPR_EQ, @2, $1, $3, @$); }
  | expr "!=" expr { $$ = BINARY(OPR_NE, @2, $1, $3, @$); }
  | expr "<=" expr { $$ = BINARY(OPR_LE, @2, $1, $3, @$); }
  | expr ">=" expr { $$ = BINARY(OPR_GE, @2, $1, $3, @$); }
  | expr AND expr { $$ = BINARY(OPR_AND, @2, $1, $3, @$); }
  | expr OR expr { $$ = BINARY(OPR_OR, @2, $1, $3, @$); }
  | NOT expr { $$ = parse_expr(p, EX_UNARY, @$, @1, OPR_NOT, $2, NULL, NULL); }
  | '-' expr %prec UMINUS { $$ = parse_expr(p, EX_UNARY, @$, @1, '-', $2, NULL, NULL); }
  | expr AS type {
      $$ = parse_expr(p, EX_AS, @$, @2, 0, $1, NULL, NULL);
      $$->type = $3;
      parse_expr_done(p, $$);
    }
  | expr '?' expr ':' expr { $$ = parse_expr(p, EX_COND, @$, @2, 0, $1, $3, $5); };

postfix:
    primary
  | postfix '(' args_opt ')' {
      $$ = parse_expr(p, EX_CALL, @$, @2, 0, $1, NULL, NULL);
      TAKE_OPT($$->args, $3);
      parse_expr_done(p, $$);
    }
  | postfix '[' indices ']' {
      $$ = parse_expr(p, EX_INDEX, @$, @2, 0, $1, NULL, NULL);
      TAKE($$->index, $3);
      parse_expr_done(p, $$);
    }
  | postfix '.' NAME {
      $$ = parse_expr(p, EX_FIELD, @$, @3, 0, $1, NULL, NULL);
      $$->text = $3;
    };

primary:
    NAME {
      $$ = parse_expr(p, EX_NAME, @$, @1, 0, NULL, NULL, NULL);
      $$->text = $1;
    }
  | NUMBER { $$ = parse_number(p, @$, $1); }
  | SIZE { $$ = parse_size(p, @$, $1); }
  | STRING {
      $$ = parse_expr(p, EX_STRING, @$, @1, 0, NULL, NULL, NULL);
      $$->text = $1;
    }
  | LITERAL { $$ = parse_literal(p, @$, $1); }
  | DTYPE { $$ = parse_dtype(p, @$, $1); }
  | '(' expr ')' {
      $$ = $2;
      $$->parens = true, $$->loc = @$;
    }
  | '(' expr ',' exprs ')' {
      $$ = parse_expr(p, EX_TUPLE, @$, @1, 0, NULL, NULL, NULL);
      ADD(&$$->items, $2);
      for (int i = 0; i < $4->n; i++) ADD(&$$->items, $4->at[i]);
      parse_expr_done(p, $$);
    }
  | '[' exprs ']' {
      $$ = parse_expr(p, EX_LIST, @$, @1, 0, NULL, NULL, NULL);
      TAKE($$->items, $2);
      parse_expr_done(p, $$);
    };

args_opt:
    %empty { $$ = NULL; }
  | args;

args:
    arg { ONE(ArgList, $$, $1); }
  | args ',' arg { $$ = $1, ADD($$, $3); };

arg:
    expr { $$ = (Arg){NULL, @1, @$, $1}; }
  | NAME '=' expr { $$ = (Arg){$1, @1, @$, $3}; };

indices:
    index { ONE(IndexList, $$, $1); }
  | indices ',' index { $$ = $1, ADD($$, $3); };

index:
    expr { $$ = (Index){IX_EXPR, @$, $1, NULL}; }
  | ':' { $$ = (Index){IX_ALL, @$, NULL, NULL}; }
  | '*' { $$ = (Index){IX_STAR, @$, NULL, NULL}; }
  | ".." { $$ = (Index){IX_DOTS, @$, NULL, NULL}; }
  | expr ':' expr { $$ = (Index){IX_RANGE, @$, $1, $3}; };
%%
/* Called with "memory exhausted" only, which is the depth limit: arenas never fail. */
static void mt_yyerror(const Loc *at, Parse *p, const char *message) {
  (void)message;
  Diag *g =
      diag_error(p->diags, E_SYNTAX, *at, "nested too deeply (limit is %d levels)", YYMAXDEPTH);
  diag_help(p->diags, g, "split it with `let` or into blocks");
  p->fatal = true;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parse *p) {
  if (p->fatal) return 0;
  yysymbol_kind_t kinds[YYNTOKENS];
  const char *names[YYNTOKENS];
  int n = yypcontext_expected_tokens(context, kinds, YYNTOKENS);
  for (int i = 0; i < n; i++) names[i] = yysymbol_name(kinds[i]);
  yysymbol_kind_t found = yypcontext_token(context);
  parse_unexpected(p, *yypcontext_location(context),
                   found == YYSYMBOL_YYEMPTY ? "" : yysymbol_name(found), names, n < 0 ? 0 : n);
  return 0;
}
