; Made from grammar/policy.lark by `make reference`.
[
  "above" "after" "also" "and" "as" "asc" "at" "backfill" "best" "by" "canary" "choose" "cluster" "clusters" "copies"
  "counting" "def" "default" "desc" "devices" "distinct" "divide" "domains" "each" "else" "evenly" "every" "evict"
  "fair" "filter" "first" "fleet" "for" "from" "gang" "help" "hold" "if" "in" "is" "karmada" "keep" "kubernetes"
  "label" "language" "lasts" "least" "lend" "let" "limit" "margin" "matches" "max" "metric" "min" "most" "never" "new"
  "nodes" "not" "nothing" "notin" "of" "one" "or" "order" "over" "pack" "partly" "placement" "pods" "policy" "preempt"
  "priority" "queue" "rebalance" "reclaim" "remember" "require" "rest" "running" "scheduler" "score" "scores" "size"
  "skew" "spread" "stale" "strict" "target" "then" "ties" "to" "use" "weight" "where" "whole" "with" "within"
  "without" "workloads"
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
