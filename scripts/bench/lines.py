"""The figures of each benchmark as lines for people."""

from __future__ import annotations

from typing import Any

from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.peers import OF_PROCESSOR
from vedette_rl.number_format import format_spread


def replay_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `replay` for people."""
    lines = [
        f"capacity {figures['capacity']:,}, rows of {figures['row_bytes']} bytes, batches of "
        f"{figures['rows_in']} in and {figures['rows_out']} out, {figures['rounds']} rounds; "
        "rows/s, and the ratio to plain numpy's (uniform draws, for prioritized ones)"
    ]
    for group in ("insert", "sample", "prioritized"):
        for name in ("numpy", "memory", "mapped"):
            rate = figures[group][f"{name}_rows_per_s"]
            if group == "prioritized" and name == "numpy":
                continue  # plain arrays have no priorities: the uniform draw is the bound
            compared = figures[group].get(f"{name}_ratio")
            times = "" if compared is None else "   " + format_spread(compared, "{:.2f}")
            lines.append(f"{group:<12}{name:<8}{format_spread(rate, '{:>12,.0f}')}{times}")
        beside = figures[group]["mapped_to_memory_ratio"]
        lines.append(f"{'':<12}mapped beside memory {format_spread(beside, '{:.2f}')}")
        if two := figures[group].get("two_sources_to_one_ratio"):
            lines.append(f"{'':<12}two sources beside one {format_spread(two, '{:.2f}')}")
    return lines


def wire_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `wire` for people."""
    lines = [
        f"batches of {figures['rows']} transitions, {figures['batch_bytes']:,} bytes; "
        "transitions/s",
        f"vedette          {format_spread(figures['transitions_per_s'], '{:>12,.0f}')}",
        f"plain PUSH/PULL  {format_spread(figures['bare_transitions_per_s'], '{:>12,.0f}')}",
        f"ratio            {format_spread(figures['ratio'], '{:>12.2f}')}",
        "processor time of a batch, in all processes that handle it; µs",
        f"vedette          {format_spread(figures['processor_us_per_batch'], '{:>12.1f}')}",
        f"plain PUSH/PULL  {format_spread(figures['bare_processor_us_per_batch'], '{:>12.1f}')}",
        f"ratio            {format_spread(figures['processor_ratio'], '{:>12.2f}')}",
    ]
    if "frames_once_ratio" in figures:
        rate = "frames_once_transitions_per_s"
        cost = "frames_once_processor_us_per_batch"
        lines += [
            "vedette as its actors send stacks, each frame of a batch once; plain PUSH/PULL whole",
            f"transitions/s    {format_spread(figures[rate], '{:>12,.0f}')}",
            f"ratio            {format_spread(figures['frames_once_ratio'], '{:>12.2f}')}",
            f"µs of a batch    {format_spread(figures[cost], '{:>12.1f}')}",
        ]
    return lines


def learner_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `learner` for people."""
    where = ", the trainer on a core of its own" if figures["own_core"] else ""
    by_hand = figures["handwritten_processor_ms_per_opt"]
    return [
        f"{'Double' if figures['double'] else 'plain'} DQN, batches of {figures['batch_size']}, "
        f"two hidden layers of {figures['hidden']}, {figures['actors']} actors beside it{where}; "
        "optimization steps/s",
        f"vedette           {format_spread(figures['opt_steps_per_s'], '{:>12,.0f}')}",
        f"written by hand   {format_spread(figures['handwritten_opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(figures['ratio'], '{:>12.2f}')}",
        "processor time of a step, ms",
        f"vedette           {format_spread(figures['processor_ms_per_opt'], '{:>12.2f}')}",
        f"written by hand   {format_spread(by_hand, '{:>12.2f}')}",
        f"ratio             {format_spread(figures['processor_ratio'], '{:>12.2f}')}",
    ]


def page_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `pages` for people."""
    size = figures["records_bytes"] / 1e9
    return [
        f"{figures['runs']} runs of {figures['numbers']:,} numbers, {size:.1f} GB; seconds, memory",
        f"report                    {figures['report_s']:8.1f}"
        f"{figures['report_memory_bytes'] / 1e6:8,.0f} MB",
        f"dashboard, first page     {figures['first_page_s']:8.1f}",
        f"whole, in several pages   {figures['whole_page_s']:8.1f}"
        f"{figures['dashboard_memory_bytes'] / 1e6:8,.0f} MB",
        f"longest of these          {figures['longest_page_s']:8.1f}",
        f"nothing new               {figures['poll_s']:8.3f}",
    ]


def fleet_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `fleet` for people."""
    passes = figures["passes"]
    learns = f", while APPO learns in {passes} passes" if passes else ""
    return [
        f"{figures['actors']} actors of {figures['envs_per_actor']} {figures['env']} "
        f"({figures['vectorization']}), counted in the replay{learns}; environment steps/s",
        format_spread(figures["steps_per_s"], "{:>12,.0f}"),
        f"an actor's resident memory: {figures['actor_resident_bytes'] / 1e6:.0f} MB",
    ]


def frames_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `frames` for people."""
    lines = [
        f"{figures['what']}: capacity {figures['capacity']:,}, batches of "
        f"{figures['rows_in']} in and {figures['rows_out']} out, {figures['rounds']} rounds; "
        "bytes a transition, rows/s"
    ]
    for name, what in (("plain", "whole"), ("once", "once ")):
        stored, sent = figures["stored_bytes_per_row"][name], figures["sent_bytes_per_row"][name]
        million = f"a million of them {figures['million_rows_bytes'][name] / 1e9:.2f} GB"
        lines.append(f"{what}  stored {stored:>8,.0f}   sent {sent:>8,.0f}   {million}")
    for group in ("insert", "sample"):
        for name, what in (("plain", "whole"), ("once", "once ")):
            rate = figures[group][f"{name}_rows_per_s"]
            lines.append(f"{group:<8}{what}  {format_spread(rate, '{:>10,.0f}')}")
        times = figures[group]["once_to_plain_ratio"]
        lines.append(f"{'':<8}once beside whole {format_spread(times, '{:.2f}')}")
    return lines


def loop_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `loops` for people."""
    lines = [
        f"batches of {figures['rows_in']} in and {figures['rows_out']} out, "
        f"{figures['rounds']} rounds; rows/s"
    ]
    for what in ("inserted", "drawn"):
        rates = figures[f"{what}_rows_per_s"]
        lines += [
            f"{what:<9}{name:<8}{format_spread(rates[name], '{:>12,.0f}')}"
            for name in ("vedette", "plain")
        ]
        lines.append(f"{what:<9}ratio   {format_spread(rates['ratio'], '{:>12.2f}')}")
    return lines


def wire_cost_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `costs` for people."""
    lines = [
        f"batches of {figures['rows']} transitions, {figures['batch_bytes']:,} bytes, "
        f"{figures['rounds']} rounds; transitions/s"
    ]
    rates, ratios = figures["transitions_per_s"], figures["ratios"]
    lines += [
        f"{kind.replace('_', ', '):<22}{format_spread(rates[kind], '{:>12,.0f}')}" for kind in rates
    ]
    lines += [
        f"{name.replace('_', ' '):<22}{format_spread(ratios[name], '{:>12.2f}')}" for name in ratios
    ]
    return lines


def outbox_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `outbox` for people."""
    lines = [
        f"batches of {figures['rows']} transitions, {figures['batch_bytes']:,} bytes; written are "
        f"{figures['written_bytes_per_transition']:.0f} bytes a transition",
        "synced every        transitions/s     ratio    µs of a batch, all processes     ratio",
    ]
    for kind, rate in figures["transitions_per_s"].items():
        cost = figures["processor_us_per_batch"][kind]
        ratio = figures["ratio"].get(kind)
        cost_ratio = figures["processor_ratio"].get(kind)
        lines.append(
            f"{kind:<10}{format_spread(rate, '{:>10,.0f}')}  "
            f"{format_spread(ratio, '{:.2f}') if ratio else '':<24}"
            f"{format_spread(cost, '{:>8.1f}')}  "
            f"{format_spread(cost_ratio, '{:.2f}') if cost_ratio else ''}"
        )
    return lines


def session_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `sessions` for people."""
    size, count = figures["archive_bytes"], figures["sessions"]
    return [
        f"{count:,} sessions: {size:,} bytes, {size / count:.0f} each; appended in "
        f"{figures['append_us']:.1f} µs each",
        f"opened in s          {format_spread(figures['open_s'], '{:>8.2f}')}",
        f"processor time       {format_spread(figures['open_processor_s'], '{:>8.2f}')}",
        f"memory of the index  {figures['index_bytes']:,} bytes",
        f"a look-up in µs      {format_spread(figures['look_up_us'], '{:>8.1f}')}",
    ]


def shift_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `shift` for people."""
    lines = [f"{figures['rows']:,} transitions in batches of {figures['batch_rows']}"]
    for limiter, found in figures["uploads"].items():
        bound = f" ({figures['samples_per_insert']:g} per insert)" if limiter == "on" else ""
        lines += [
            f"the limiter {limiter}{bound}",
            f"  made in         {found['made_s']:>8.1f} s, {found['outbox_bytes'] / 1e6:,.0f} MB",
            f"  read and joined {found['joined_s']:>8.1f} s; "
            f"{found['manager_resident_bytes'] / 1e6:,.0f} MB of the manager's memory at most",
            f"  uploaded in     {found['uploaded_s']:>8.1f} s, {found['uploaded_per_s']:,.0f}/s; "
            f"safe {found['safe_after_stored_s']:.1f} s later",
            f"  live steps/s    {found['live_steps_per_s']:>8.1f}, at most "
            f"{found['live_delay_s']:.1f} s late; {found['opt_steps_per_s']:,.0f} optimization "
            f"steps/s; lost {found['lost']}, duplicates {found['duplicates']}",
        ]
        lines += [
            f"  after {said['at_s']:>4.0f} s the log said {said['left']:,} left, about "
            f"{said['said_s']:.0f} s; it took {said['took_s']:.0f} s"
            for said in found["said"]
        ]
    return lines


def snapshot_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `snapshots` for people."""
    written = figures["written_bytes_per_sample"]
    lines = [
        f"a generation every {figures['interval_s']:g} s, {figures['generations']} measured; "
        f"{format_spread(written, '{:.0f}')} bytes written for a sample of {figures['row_bytes']}",
        "            optimization steps/s     ratio    samples/s    ms of a step, learner   ratio",
    ]
    for kind, rate in figures["opt_steps_per_s"].items():
        cost = figures["processor_ms_per_opt"][kind]
        lines.append(
            f"{kind:<10}{format_spread(rate, '{:>8,.0f}')}  "
            f"{format_spread(figures['ratio'][kind], '{:.2f}')}  "
            f"{figures['samples_per_s'][kind]['median']:>8,.0f}  "
            f"{format_spread(cost, '{:>6.2f}')}  "
            f"{format_spread(figures['processor_ratio'][kind], '{:.2f}')}"
        )
    return lines


def model_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `models` for people."""
    return [
        f"{figures['model_bytes']:,} bytes to {figures['actors']} actors, every "
        f"{figures['interval_s']:g} s; {figures['published']} published, "
        f"{figures['everywhere']} acted on by all; ms",
        f"the loop waits     {format_spread(figures['loop_waits_ms'], '{:>10,.2f}')}",
        f"one copy takes it  {format_spread(figures['loop_copies_ms'], '{:>10,.2f}')}",
        f"to the last actor  {format_spread(figures['delay_ms'], '{:>10,.1f}')}",
        f"bare copies        {format_spread(figures['bare_copies_ms'], '{:>10,.1f}')}",
        f"ratio              {format_spread(figures['ratio'], '{:>10.1f}')}",
    ]


def custom_loop_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `custom-loop` for people."""
    lines = [f"{figures['envs']} of {figures['env']}, batches of {figures['rows']}"]
    for unit, ratio in (("s", "ratio"), ("processor_s", "processor_ratio")):
        custom, process = figures[f"custom_steps_per_{unit}"], figures[f"process_steps_per_{unit}"]
        lines += [
            "steps a second" if unit == "s" else "steps a second of processor time",
            f"custom loop       {format_spread(custom, '{:>12,.0f}')}",
            f"actor process     {format_spread(process, '{:>12,.0f}')}",
            f"ratio             {format_spread(figures[ratio], '{:>12.3f}')}",
        ]
    return lines


def real_time_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `real-time` for people."""
    return [
        f"{figures['steps']} steps at 50 Hz, learner killed {figures['kills']} times: "
        f"{figures['missed']} periods missed, longest act {figures['longest_act_ms']:.1f} ms, "
        f"{figures['dropped']} samples dropped"
    ]


def shapes_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `shapes` for people."""
    return [
        f"{figures['said']}; actors x environments, environment steps/s",
        *(
            f"{name:<18}{format_spread(rate, '{:>8,.0f}')}"
            for name, rate in figures["steps_per_s"].items()
        ),
        f"default beside {figures['best_by_hand']}, the best by hand: "
        f"{figures['default_to_best']:.2f}",
    ]


def manager_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `managers` for people."""
    lines = [f"{figures['samples_per_s']:,.0f} samples/s of all managers together"]
    for count, fleet in figures["managers"].items():
        inserted = fleet["inserted_per_s"]
        cost = fleet["gateway_us_per_sample"]
        lines += [
            f"{count:>4} managers: inserted/s  {format_spread(inserted, '{:>9,.0f}')}",
            f"      gateway, µs a sample{format_spread(cost, '{:>9.2f}')}",
            f"      gateway, cores      {format_spread(fleet['gateway_cores'], '{:>9.2f}')}",
            f"      status, ms          {format_spread(fleet['status_ms'], '{:>9.1f}')}",
            f"      {fleet['descriptors']} descriptors, {fleet['resident_bytes'] >> 20} MiB",
            f"      lost {fleet['lost']}, duplicates {fleet['duplicates']}",
        ]
    lines.append(f"growth of the cost        {format_spread(figures['growth'], '{:>9.2f}')}")
    return lines


def checkpoint_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `checkpoints` for people."""
    writing = figures["opt_steps_per_s_while_writing"]
    return [
        f"the loop alone, while a checkpoint of {figures['checkpoint_bytes']:,} bytes is written "
        "and between two of them; optimization steps/s",
        f"writing           {format_spread(writing, '{:>12,.0f}')}",
        f"between           {format_spread(figures['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(figures['ratio'], '{:>12.2f}')}",
        f"a write lasts, ms {format_spread(figures['checkpoint_ms'], '{:>12.1f}')}",
        f"and costs, ms     {format_spread(figures['cost_ms'], '{:>12.2f}')}",
        f"which is steps    {format_spread(figures['cost_opt_steps'], '{:>12.2f}')}",
    ]


def publishing_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `publishing` for people."""
    return [
        f"the loop alone, publishing a model of {figures['model_bytes']:,} bytes after every step "
        "and not; optimization steps/s",
        f"publishing        {format_spread(figures['opt_steps_per_s_publishing'], '{:>12,.0f}')}",
        f"not               {format_spread(figures['opt_steps_per_s'], '{:>12,.0f}')}",
        f"ratio             {format_spread(figures['ratio'], '{:>12.3f}')}",
        f"a call takes, ms  {format_spread(figures['call_ms'], '{:>12.2f}')}",
        f"a model costs, ms {format_spread(figures['cost_ms'], '{:>12.2f}')}",
    ]


def journal_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `journal` for people."""
    lines = [
        "a draw takes, us",
        f"in the loop       {format_spread(figures['draw']['loop_us'], '{:>12.2f}')}",
        f"of processors     {format_spread(figures['draw']['processor_us'], '{:>12.2f}')}",
        f"{figures['pairs']} pairs of runs of {figures['opts']:,} steps; a step's "
        "microseconds without a journal, and what it adds in a pair: median and quartiles",
    ]
    for kind, times in figures["kinds"].items():
        for name, spread in times.items():
            more = spread["more_us"]
            lines.append(
                f"{kind:12} {name:15} {spread['without_us']:8,.0f} {more['median']:+8.1f} "
                f"[{more['low']:+.1f}, {more['high']:+.1f}]"
            )
    return lines


def sac_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `sac` for people."""
    return ["SAC, batches of 256, two layers of 256; milliseconds of a step"] + [
        f"{figure:34} {side:20} {format_spread(spread, '{:>8.2f}')}"
        for figure, sides in figures.items()
        for side, spread in sides.items()
    ]


def peer_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `peers` for people: ours beside each, and who was left out."""
    lines = [f"{figures['unit']}, load at the end {figures['load']:.1f}"]
    for name, rates in figures["rates"].items():
        measure = OF_PROCESSOR if name.endswith(OF_PROCESSOR) else ""
        rate = summarize_rounds(rates)
        ratio = ratio_of_rounds(figures["rates"]["vedette" + measure], rates)
        lines.append(
            f"{name:<30}{format_spread(rate, '{:>14,.0f}')}"
            f"   ours / theirs {format_spread(ratio, '{:.2f}')}"
        )
    return lines + [f"{name:<30}{why}" for name, why in figures["left_out"].items()]


def replay_peer_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `replay-peers` for people."""
    lines = ["rows/s, and the ratio of ours to theirs"]
    for group, by_name in figures.items():
        for name, one in by_name.items():
            ratio = one.get("vedette_ratio")
            times = "" if ratio is None else "   " + format_spread(ratio, "{:.2f}")
            rate = format_spread(one["rows_per_s"], "{:>12,.0f}")
            lines.append(f"{group:<22}{name:<26}{rate}{times}")
    return lines


def remote_replay_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `remote-replays` for people."""
    lines = ["rows/s, and the ratio of ours to theirs"]
    for name, one in figures["systems"].items():
        if "drawn_rows_per_s" not in one:
            lines.append(f"{name:<12}failed")
            continue
        for what in ("inserted", "drawn"):
            rate = format_spread(one[f"{what}_rows_per_s"], "{:>12,.0f}")
            times = format_spread(one[f"vedette_{what}_ratio"], "{:.2f}")
            lines.append(f"{name:<12}{what:<9}{rate}   {times}")
    return lines + [f"{name:<12}{why}" for name, why in figures["left_out"].items()]


def sb3_lines(figures: dict[str, Any]) -> list[str]:
    """Format the figures of `sb3` for people: a line a run, then the medians."""
    lines = [
        f"{run['what']:<20}seed {run['seed']}  {run['wall_s']:>8,.1f} s  {run['env_steps']:>10,} "
        f"env steps  {'solved' if run['solved'] else 'not solved'}"
        for run in figures["runs"]
    ]
    for name, medians in figures["medians"].items():
        by_name = "   ".join(f"{who} {value:,.1f}" for who, value in medians.items())
        lines.append(f"median {name}: {by_name.replace('theirs_by_ours', 'theirs by ours')}")
    return lines
