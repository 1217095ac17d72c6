"""What the model sees: pure stages that turn the path of a conversation into the view that is sent.

A stage takes messages and gives messages; it never edits ledger or log. What must be remembered is recorded as an event
by the ledger, not here. `pipeline.make_view` puts the stages in their order.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projector.context.budget import Budget, Used
    from projector.context.chain import ChainSession
    from projector.context.delta import Delta, Full, ProviderCapabilities, ProviderSession
    from projector.context.expansion import TEACHING, Hint, Refusal, Request, notice, read_request
    from projector.context.lifecycle import Lifecycle, LifecycleEvent
    from projector.context.pipeline import Pipeline, Summaries, View, make_view
    from projector.context.plugins import DEFAULT, Bundled, keep_role_pairs, keep_token_budget, keep_window
    from projector.context.policies import Action, ExpirationPolicy, Override, PolicyRegistry, read_registry
    from projector.context.prompts import Prompt, PromptModel, Prompts
    from projector.context.report import Change
    from projector.context.result_stages import Expiration, NearDuplicates, Relevance, summarizer_of
    from projector.context.retention import AdditionalContent, PluginAdditions, RetentionAware, check_policy, enrich, prune
    from projector.context.stage import Shaped, Source, Stage
    from projector.context.summaries import Summarizer, SummaryMaker
else:
    from stream.lazy_names import on_demand as _on_demand

    __getattr__, __dir__ = _on_demand(
        __name__,
        {
            "projector.context.budget": "Budget Used",
            "projector.context.chain": "ChainSession",
            "projector.context.delta": "Delta Full ProviderCapabilities ProviderSession",
            "projector.context.expansion": "TEACHING Hint Refusal Request notice read_request",
            "projector.context.lifecycle": "Lifecycle LifecycleEvent",
            "projector.context.pipeline": "Pipeline Summaries View make_view",
            "projector.context.plugins": "DEFAULT Bundled keep_role_pairs keep_token_budget keep_window",
            "projector.context.policies": "Action ExpirationPolicy Override PolicyRegistry read_registry",
            "projector.context.prompts": "Prompt PromptModel Prompts",
            "projector.context.report": "Change",
            "projector.context.result_stages": "Expiration NearDuplicates Relevance summarizer_of",
            "projector.context.retention": "AdditionalContent PluginAdditions RetentionAware check_policy enrich prune",
            "projector.context.stage": "Shaped Source Stage",
            "projector.context.summaries": "Summarizer SummaryMaker",
        },
    )

__all__ = [
    "DEFAULT",
    "TEACHING",
    "Action",
    "AdditionalContent",
    "Budget",
    "Bundled",
    "ChainSession",
    "Change",
    "Delta",
    "Expiration",
    "ExpirationPolicy",
    "Full",
    "Hint",
    "Lifecycle",
    "LifecycleEvent",
    "NearDuplicates",
    "Override",
    "Pipeline",
    "PluginAdditions",
    "PolicyRegistry",
    "Prompt",
    "PromptModel",
    "Prompts",
    "ProviderCapabilities",
    "ProviderSession",
    "Refusal",
    "Relevance",
    "Request",
    "RetentionAware",
    "Shaped",
    "Source",
    "Stage",
    "Summaries",
    "Summarizer",
    "SummaryMaker",
    "Used",
    "View",
    "check_policy",
    "enrich",
    "keep_role_pairs",
    "keep_token_budget",
    "keep_window",
    "make_view",
    "notice",
    "prune",
    "read_registry",
    "read_request",
    "summarizer_of",
]
