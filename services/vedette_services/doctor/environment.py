"""Whether this host can play what a learner runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vedette_protocol.messages import Run
from vedette_rl.errors import RlError
from vedette_services.actors.errors import ImportRefusedError
from vedette_services.doctor.findings import Finding, fail, ok, refused, warn
from vedette_services.errors import RefusedError, in_a_line


def examine_environment(
    run: Run | None, env: str | None, allow_import: Collection[str]
) -> Iterator[Finding]:
    """Build the environment here and compare its rows with the run's.

    Args:
        run: None: none is announced yet.
        env: what to build in place of the run's environment.
    """
    from vedette_rl.envs.config import EnvConfig
    from vedette_rl.envs.make import probe
    from vedette_services.actors.actor import check_schema
    from vedette_services.actors.run_terms import accept_run

    if run is None and env is None:
        yield warn("environment", "not looked at: there is no run", "--env ID builds one")
        return
    try:
        if env is not None:
            config = EnvConfig(id=env)
            spaces = probe(config)  # typed here: it may import what it names
        else:
            assert run is not None, "one of the two is there"
            accept_run(run, allow_import)
            config = EnvConfig.model_validate(dict(run.env))
            spaces = probe(config)  # every import it asks for was allowed above
        yield ok("environment", f"{config.id} can be built and stepped here")
        if run is not None:
            check_schema(spaces, run.schema)
            yield ok("spec", f"rows here are those of the run (schema {run.schema.hash})")
    except ImportRefusedError as error:
        yield refused("environment", str(error))
    except RefusedError as error:
        yield refused("spec", str(error))
    except (RlError, ValueError) as error:
        yield fail("environment", " ".join(str(error).split()), "install it on this host")
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        yield fail("environment", f"it raises {in_a_line(error)}", "mend it here")
