"""Charts of what agents record, and the sentence about each recorded tag: the report shows it
beside a chart, TensorBoard beside a curve."""

from __future__ import annotations

from functools import cache

from vedette_services.status.schema import declared
from vedette_services.status.status import Status, charts

LEARNING_CHARTS = {
    "loss": ("Loss", "Of the batch, before its gradient step."),
    "critic_loss": ("Loss of the critics", "Of the batch, before its gradient step."),
    "actor_loss": ("Loss of the policy", "Of the batch, before its gradient step."),
    "policy_loss": ("Loss of the policy", "Of the batch, before its gradient step."),
    "q_mean": ("Estimated value (Q)", "Mean over the batch of the values of the actions taken."),
    "target_mean": ("Target of the value", "Mean over the batch of what the values are moved to."),
    "td_error_mean": ("TD error", "Mean over the batch of target minus value."),
    "grad_norm": ("Norm of the gradient", "Before it is clipped."),
    "policy_grad_norm": ("Norm of the policy's gradient", "Before it is clipped."),
    "alpha": ("Temperature (alpha)", "Weight of the entropy in SAC's objective."),
    "entropy": ("Entropy of the policy", "Estimated from the batch."),
    "steps_left_out": (
        "Optimization steps left out",
        "They moved nothing, as their gradients were not finite.",
    ),
}
"""Title and sentence of what agents record, by its name below ``train/``."""


def describe_tag(tag: str) -> str:
    """Return a sentence on what is recorded under a tag; "" where nothing is known of it."""
    own = tag.removeprefix("train/")
    if own != tag and own in LEARNING_CHARTS:
        title, about = LEARNING_CHARTS[own]
        return f"{title}. {about}"
    return _descriptions_of_status().get(tag, "")


@cache
def _descriptions_of_status() -> dict[str, str]:
    found = {
        tag: f"{number.title[:1].upper()}{number.title[1:]}."
        for _, number in declared(Status)
        for tag in number.tags
    }
    for spec in charts():
        found |= {tag: f"{spec.title}. {spec.about}".rstrip() for tag, _ in spec.curves}
    return found
