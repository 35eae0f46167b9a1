; Made from grammar/policy.lark by `make reference`.
[
  "above" "after" "and" "as" "asc" "at" "backfill" "by" "canary" "cluster" "counting" "def" "default" "desc" "devices"
  "distinct" "domains" "else" "every" "evict" "fair" "filter" "for" "from" "gang" "help" "hold" "if" "in" "is"
  "kubernetes" "label" "language" "lasts" "lend" "let" "limit" "margin" "matches" "max" "metric" "min" "most" "never"
  "new" "nodes" "not" "notin" "of" "one" "or" "order" "over" "pack" "pods" "policy" "preempt" "priority" "queue"
  "rebalance" "reclaim" "remember" "require" "rest" "scheduler" "score" "scores" "size" "skew" "spread" "stale"
  "strict" "target" "then" "ties" "to" "use" "weight" "where" "whole" "with" "within" "without"
] @keyword
[
  "false" "missing" "true"
] @constant.builtin
[
  "!=" "%" "*" "+" "-" "/" "<" "<=" "=" "==" ">" ">=" "??"
] @operator
[
  "(" ")" "[" "]"
] @punctuation.bracket
[
  "," "."
] @punctuation.delimiter
(comment) @comment
(string) @string
(value) @string
(digits) @number
(property) @property
(key) @property
(object_name) @label
(name) @variable
(let (identifier) @variable)
(metric (identifier) @variable)
(parameters (identifier) @variable.parameter)
(named (identifier) @variable.parameter)
(define (identifier) @function)
(call (identifier) @function)
((name) @variable.builtin (#any-of? @variable.builtin "node" "pod"))
