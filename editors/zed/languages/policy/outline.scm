(policy "policy" @context (object_name) @name) @item
(queue "queue" @context . (object_name) @name) @item
(let "let" @context (identifier) @name) @item
(define "def" @context (identifier) @name) @item
(metric "metric" @context (identifier) @name) @item
(require "require" @context (part_as (object_name) @name)) @item
(filter "filter" @context (part_as (object_name) @name)) @item
(score "score" @context (part_as (object_name) @name)) @item
(spread "spread" @context (part_as (object_name) @name)) @item
(pack "pack" @context (part_as (object_name) @name)) @item
(limit "limit" @context (part_as (object_name) @name)) @item
(hold "hold" @context (part_as (object_name) @name)) @item
