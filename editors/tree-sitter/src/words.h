// The words of a policy, read as the scheduler reads them: which word something is depends on what can stand there
// (engine/kube_policy_scheduler/lang/reading). parser.c includes this behind its tables.

#define MOST_LETTERS 32  // of a keyword, and more

typedef struct {
  char text[MOST_LETTERS + 1];
  unsigned length;  // of the word, which may be longer than its text here
} Word;

static bool is_digit(int32_t c) { return c >= '0' && c <= '9'; }
static bool is_alnum(int32_t c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_letter(int32_t c) { return is_alnum(c) || c == '_'; }
static bool is_blank(int32_t c) { return c == ' ' || c == '\t' || c == '\r'; }
static bool is_one_of(int32_t c, const char *all) {
  for (; *all != 0; all++) {
    if (c == *all) return true;
  }
  return false;
}

static bool is(const Word *word, const char *text) {
  unsigned i = 0;
  for (; text[i] != 0; i++) {
    if (i >= MOST_LETTERS || word->text[i] != text[i]) return false;
  }
  return word->length == i;
}

static bool is_among(const Word *word, const char *const *texts) {
  for (; *texts != 0; texts++) {
    if (is(word, *texts)) return true;
  }
  return false;
}

static Word read_word(TSLexer *lexer) {
  Word word = {.length = 0};
  for (; is_letter(lexer->lookahead); word.length++) {
    if (word.length < MOST_LETTERS) word.text[word.length] = (char)lexer->lookahead;
    lexer->advance(lexer, false);
  }
  word.text[word.length < MOST_LETTERS ? word.length : MOST_LETTERS] = 0;
  return word;
}

static bool skip_blanks(TSLexer *lexer) {
  bool some = false;
  for (; is_blank(lexer->lookahead); some = true) lexer->advance(lexer, false);
  return some;
}

// --- where a statement ends ------------------------------------------------------------------------------

// Of a line whose first word has been read.
static bool begins_statement(TSLexer *lexer, const Word *first) {
  if (!is_among(first, statement_words)) return false;
  bool blank = skip_blanks(lexer);
  if (is(first, "language") && !(blank && is_digit(lexer->lookahead))) return false;
  if (is(first, "queue") && !(blank && is_alnum(lexer->lookahead))) return false;
  const char *second = is(first, "for") ? "pods" : is(first, "devices") || is(first, "domains") ? "by" : 0;
  if (second != 0) {
    if (!blank) return false;
    Word word = read_word(lexer);
    if (!is(&word, second)) return false;
    blank = skip_blanks(lexer);
  }
  int32_t c = lexer->lookahead;
  if (c == '\n' || lexer->eof(lexer)) return true;
  if (!blank || !(is_letter(c) || is_one_of(c, "\".([-"))) return false;
  Word word = read_word(lexer);
  if (is(&word, "not")) {
    skip_blanks(lexer);
    word = read_word(lexer);
    return !is(&word, "in");
  }
  return !is_among(&word, words_behind_a_name);
}

static bool goes_on(TSLexer *lexer, const Word *first) {
  if (is(first, "for")) return !begins_statement(lexer, first);
  if (!is_among(first, words_that_go_on)) return false;
  skip_blanks(lexer);
  return lexer->lookahead != '=';
}

// The end of a line that ends a statement; nothing where the statement goes on. Comments are read by `lex`.
static bool scan_line_end(void *none, TSLexer *lexer, const bool *valid) {
  (void)none;
  while (is_blank(lexer->lookahead)) lexer->advance(lexer, true);
  if (lexer->lookahead != '\n') return false;
  lexer->advance(lexer, false);
  lexer->mark_end(lexer);
  lexer->result_symbol = 0;
  while (is_blank(lexer->lookahead) || lexer->lookahead == '\n') lexer->advance(lexer, false);
  int32_t c = lexer->lookahead;
  if (lexer->eof(lexer) || c == '#') return false;
  Word word = read_word(lexer);
  if (!valid[0]) return begins_statement(lexer, &word);  // inside brackets: one was forgotten
  if (word.length == 0) return !is_one_of(c, "-+*/<>=!?,.%)]");
  return !goes_on(lexer, &word);
}

// --- words and signs -------------------------------------------------------------------------------------

static bool found(TSLexer *lexer, TSSymbol symbol) {
  lexer->result_symbol = symbol;
  return true;
}

// Words that mean something only where a name or value follows them.
static bool means_something(TSLexer *lexer, TSSymbol symbol) {
  if (symbol != WORD_LABEL && symbol != WORD_ONE && symbol != WORD_DISTINCT) return true;
  if (!skip_blanks(lexer)) return false;
  int32_t c = lexer->lookahead;
  if (symbol == WORD_LABEL) return is_alnum(c) || c == '"';
  if (symbol == WORD_DISTINCT && (c == '"' || c == '(' || c == '[')) return true;
  if (symbol == WORD_ONE && c == '"') return true;
  if (symbol == WORD_ONE ? !is_alnum(c) : is_digit(c) || !is_letter(c)) return false;
  Word next = read_word(lexer);
  return !is_among(&next, symbol == WORD_ONE ? words_behind_one : words_behind_distinct);
}

static void extend(TSLexer *lexer, const char *inside) {
  while (is_letter(lexer->lookahead) || is_one_of(lexer->lookahead, inside)) {
    bool last = is_alnum(lexer->lookahead);
    lexer->advance(lexer, false);
    if (last) lexer->mark_end(lexer);
  }
}

// Of a name with signs in it, such as a label key. It ends with a letter or digit.
static bool lex_long_name(TSLexer *lexer, const uint64_t *valid, bool slashes_only) {
  if (VALID(valid, WORD_LABEL_KEY)) {
    extend(lexer, "-./");
    return found(lexer, WORD_LABEL_KEY);
  }
  if (slashes_only) return false;
  TSSymbol symbol = VALID(valid, WORD_OBJECT_NAME) ? WORD_OBJECT_NAME : WORD_LABEL_VALUE;
  if (!VALID(valid, symbol)) return false;
  extend(lexer, "-.");
  return found(lexer, symbol);
}

static bool lex_word(TSLexer *lexer, const uint64_t *valid, bool recovering, bool begins_line) {
  bool name_only = lexer->lookahead == '_';
  Word word = read_word(lexer);
  lexer->mark_end(lexer);
  if (recovering) {  // everything is possible: what it most likely is
    if (is_among(&word, statement_words) ? !begins_line : !is_among(&word, reserved_words)) {
      return found(lexer, WORD_NAME);
    }
  }
  for (unsigned i = 0; i < FIRST_WORDS; i++) {
    if (VALID(valid, keywords[i].symbol) && is(&word, keywords[i].text) && means_something(lexer, keywords[i].symbol)) {
      return found(lexer, keywords[i].symbol);
    }
  }
  if (!recovering) {
    if (VALID(valid, WORD_NAME) && !is_among(&word, reserved_words)) return found(lexer, WORD_NAME);
    if (!name_only && lex_long_name(lexer, valid, false)) return true;
    if (VALID(valid, WORD_MEMBER)) return found(lexer, WORD_MEMBER);
  }
  for (unsigned i = FIRST_WORDS; keywords[i].text != 0; i++) {
    if (VALID(valid, keywords[i].symbol) && is(&word, keywords[i].text)) return found(lexer, keywords[i].symbol);
  }
  return recovering && found(lexer, WORD_NAME);
}

// A number with its unit; or, where no number can stand, a name that begins with a digit.
static bool lex_number(TSLexer *lexer, const uint64_t *valid, bool whole) {
  if (!VALID(valid, WORD_NUMBER)) return lex_long_name(lexer, valid, false);
  while (is_digit(lexer->lookahead)) lexer->advance(lexer, false);
  if (whole && lexer->lookahead == '.') {
    lexer->advance(lexer, false);
    while (is_digit(lexer->lookahead)) lexer->advance(lexer, false);
  }
  lexer->mark_end(lexer);
  if (lexer->lookahead == 'e' || lexer->lookahead == 'E') {
    lexer->advance(lexer, false);
    lexer->mark_end(lexer);
    if (lexer->lookahead == '+' || lexer->lookahead == '-') {
      lexer->advance(lexer, false);
      if (!is_digit(lexer->lookahead)) return found(lexer, WORD_NUMBER);
    }
    while (is_digit(lexer->lookahead)) lexer->advance(lexer, false);
    lexer->mark_end(lexer);
  }
  if (lexer->lookahead == '%') {
    lexer->advance(lexer, false);
    if (!is_letter(lexer->lookahead) && !is_one_of(lexer->lookahead, "\"[.(")) lexer->mark_end(lexer);
    return found(lexer, WORD_NUMBER);
  }
  while (is_letter(lexer->lookahead) && !is_digit(lexer->lookahead)) lexer->advance(lexer, false);
  lexer->mark_end(lexer);
  return found(lexer, WORD_NUMBER);
}

static bool lex_string(TSLexer *lexer) {
  lexer->advance(lexer, false);
  while (lexer->lookahead != '"') {
    if (lexer->lookahead == '\\') lexer->advance(lexer, false);
    if (lexer->lookahead == '\n' || lexer->eof(lexer)) return false;
    lexer->advance(lexer, false);
  }
  lexer->advance(lexer, false);
  lexer->mark_end(lexer);
  return found(lexer, WORD_STRING);
}

static bool lex_sign(TSLexer *lexer, const uint64_t *valid) {
  char first = (char)lexer->lookahead;
  lexer->advance(lexer, false);
  lexer->mark_end(lexer);
  if (first == '.' && is_digit(lexer->lookahead) && VALID(valid, WORD_NUMBER)) return lex_number(lexer, valid, false);
  for (unsigned i = 0; signs[i].text != 0; i++) {  // those of two characters are first
    const char *text = signs[i].text;
    if (text[0] != first || !VALID(valid, signs[i].symbol)) continue;
    if (text[1] == 0) return found(lexer, signs[i].symbol);
    if (text[1] == lexer->lookahead) {
      lexer->advance(lexer, false);
      lexer->mark_end(lexer);
      return found(lexer, signs[i].symbol);
    }
  }
  return false;
}

static bool lex(TSLexer *lexer, TSStateId state) {
  const uint64_t *valid = valid_words[state];
  bool begins_line = lexer->get_column(lexer) == 0;
  for (; is_blank(lexer->lookahead) || lexer->lookahead == '\n' || lexer->lookahead == 0xfeff;) {
    begins_line |= lexer->lookahead == '\n';
    lexer->advance(lexer, true);
  }
  int32_t c = lexer->lookahead;
  if (lexer->eof(lexer)) {
    lexer->mark_end(lexer);
    return found(lexer, END_OF_FILE);
  }
  if (c == '#') {
    while (lexer->lookahead != '\n' && !lexer->eof(lexer)) lexer->advance(lexer, false);
    lexer->mark_end(lexer);
    return found(lexer, WORD_COMMENT);
  }
  if (is_digit(c)) return lex_number(lexer, valid, true);
  if (is_letter(c)) return lex_word(lexer, valid, state == 0, begins_line);
  if (c == '"') return VALID(valid, WORD_STRING) && lex_string(lexer);
  return c < 128 && lex_sign(lexer, valid);
}

static void *create(void) { return 0; }
static void destroy(void *none) { (void)none; }
static unsigned keep(void *none, char *buffer) {
  (void)none, (void)buffer;
  return 0;
}
static void recall(void *none, const char *buffer, unsigned length) { (void)none, (void)buffer, (void)length; }
