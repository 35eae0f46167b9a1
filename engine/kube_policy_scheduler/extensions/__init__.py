"""Extensions that come with the project: off unless `policies.extensions` of the configuration names them."""
