"""CEL as Kubernetes uses it to select devices: compiled once per expression, its cost bounded as upstream's is.

Google's own implementation parses and type-checks (`cel-expr-python`, a binding of cel-cpp); what it makes is
evaluated here, node by node of the checked expression. cel-cpp's evaluator could not be used: it counts no cost (an
expression of 1 KB that doubles a text 25 times runs for minutes), has no values of Kubernetes' types, and its errors
differ from those that kube-scheduler reports.
"""
