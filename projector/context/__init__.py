"""What the model sees: pure stages that turn the path of a conversation into the view that is sent (CONTEXT.md).

A stage takes messages and gives messages; it never edits ledger or log. What must be remembered is recorded as an event
by the ledger, not here.
"""

from projector.context.retention import AdditionalContent, PluginAdditions, RetentionAware, check_policy, enrich, prune

__all__ = ["AdditionalContent", "PluginAdditions", "RetentionAware", "check_policy", "enrich", "prune"]
