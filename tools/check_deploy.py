#!/usr/bin/env python3
"""Checks deploy/: the container recipe, the systemd unit and the Helm chart.

  check_deploy.py               every check; tools that are not installed are named, and what they would do is left out
  check_deploy.py --render      prints the manifests of the chart with its default values

hadolint, systemd-analyze and helm are used where they are installed. Without helm, a small renderer of the constructs that the
chart uses makes the manifests, which are checked in any case: YAML, security, probes, selectors, and flags of the program.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("deploy: not checked, PyYAML is not installed (tools/setup.sh test)")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/redline"
# Values under which every template and every branch is rendered.
VARIANTS = {
    "default": {},
    "everything": {
        "model": {"args": ["/models/a.gguf", "b=/models/b", "--memory", "8000"], "claim": "models"},
        "apiKeysSecret": "keys", "autoscaling": {"enabled": True}, "podMonitor": {"enabled": True},
        "ingress": {"enabled": True, "tlsSecret": "tls"}, "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
}


def merged(values, changes):
    out = dict(values)
    for key, value in changes.items():
        out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


class Renderer:
    """The part of Go templates that the chart uses: values, if, define, include, and a few functions in pipelines."""

    def __init__(self, context):
        self.context, self.defined = context, {}

    def tokens(self, text):
        at = 0
        for match in re.finditer(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", text, re.S):
            before = text[at:match.start()]
            yield "text", before.rstrip() if match[1] else before
            yield "action", match[2]
            at = match.end()
            if match[3]:
                at += len(text[at:]) - len(text[at:].lstrip())
        yield "text", text[at:]

    def render(self, text):
        out, end = self.block(list(self.tokens(text)), 0, True)
        assert end is None, "an end without a beginning"
        return out

    def block(self, tokens, at, is_live, is_top=True):
        """The output up to the matching else or end, and where that is; at the top, up to the end."""
        out = []
        while at < len(tokens):
            kind, text = tokens[at]
            if kind == "text":
                out.append(text if is_live else "")
            elif text.startswith("if "):
                holds = is_live and bool(self.value(text[3:]))
                inner, at = self.block(tokens, at + 1, holds, False)
                if tokens[at][1] == "else":
                    other, at = self.block(tokens, at + 1, is_live and not holds, False)
                    inner += other
                out.append(inner)
            elif text.startswith("define "):
                inner, at = self.block(tokens, at + 1, True, False)
                self.defined[text[7:].strip('"')] = inner
            elif text in ("else", "end"):
                assert not is_top, f"{text} without a beginning"
                return "".join(out), at
            elif is_live:
                out.append(self.text(self.value(text)))
            at += 1
        assert is_top, "a block without an end"
        return "".join(out), None

    @staticmethod
    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    def value(self, pipeline):
        value = None
        for i, call in enumerate(pipeline.split("|")):
            words = re.findall(r'"[^"]*"|\S+', call)
            arguments = [self.argument(word) for word in words[0 if words[0][0] in '."' else 1:]]
            if i > 0:
                arguments.append(value)
            value = arguments[0] if words[0][0] in '."' else self.function(words[0], arguments)
        return value

    def argument(self, word):
        if word.startswith('"'):
            return word.strip('"')
        if word == ".":
            return self.context
        if not word.startswith("."):
            return int(word)
        value = self.context
        for name in word[1:].split("."):
            assert name in value, f"{word} is not in values.yaml"
            value = value[name]
        return value

    def function(self, name, arguments):
        if name == "include":
            return self.render(self.defined[arguments[0]])
        if name == "not":
            return not arguments[0]
        if name == "add":
            return sum(arguments)
        if name == "div":
            return arguments[0] // arguments[1]
        if name == "quote":
            return '"' + self.text(arguments[0]).replace("\\", "\\\\").replace('"', '\\"') + '"'
        if name == "toYaml":
            return yaml.safe_dump(arguments[0], default_flow_style=False).rstrip("\n")
        if name == "nindent":
            return "\n" + "\n".join(" " * arguments[0] + line for line in arguments[1].splitlines())
        raise AssertionError(f"the function {name} is not known to tools/check_deploy.py")


def manifests(changes):
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), changes)
    chart = {key[0].upper() + key[1:]: value for key, value in yaml.safe_load((CHART / "Chart.yaml").read_text()).items()}
    renderer = Renderer({"Values": values, "Chart": chart, "Release": {"Name": "test"}})
    templates = sorted((CHART / "templates").iterdir(), key=lambda path: not path.name.startswith("_"))
    for path in templates:
        try:
            text = renderer.render(path.read_text())
            if path.suffix == ".yaml" and text.strip():
                yield path.name, text, yaml.safe_load(text)
        except (AssertionError, yaml.YAMLError, KeyError, TypeError) as error:
            raise SystemExit(f"deploy/helm/redline/templates/{path.name}: {error}")


def flags_of_the_program():
    """Flags of `redline serve`: its page in docs/cli.md, and the rows of its engine's options."""
    text = (ROOT / "docs/cli.md").read_text()
    section = re.search(r"^## redline serve$.*?(?=^## )", text, re.S | re.M)
    rows = (ROOT / "include/redline/text_engine_options.inc").read_text()
    of_rows = {f"--{flag}" for flag in re.findall(r'\.flag = "([a-z0-9-]+)"', rows)}
    return of_rows | set(re.findall(r"--[a-z][a-z0-9-]*", section[0]))


def check_flags(name, words):
    for word in words:
        if word.startswith("--") and word.split("=")[0] not in flags_of_the_program():
            yield f"{name}: redline serve has no flag {word}"


def check_chart():
    seen = set()
    for variant, changes in VARIANTS.items():
        found = {}
        for file, _, manifest in manifests(changes):
            place = f"deploy/helm/redline/templates/{file} ({variant})"
            for key in ("apiVersion", "kind", "metadata"):
                if key not in manifest:
                    yield f"{place}: no {key}"
            found[manifest["kind"]] = manifest
            seen.add(file)
        deployment = found["Deployment"]["spec"]
        pod = deployment["template"]["spec"]
        container = pod["containers"][0]
        place = f"deployment.yaml ({variant})"
        security = container["securityContext"]
        wanted = [
            (pod["securityContext"].get("runAsNonRoot"), "runs as root"),
            (security.get("readOnlyRootFilesystem"), "has a root file system that can be written"),
            (security.get("allowPrivilegeEscalation") is False, "may gain privileges"),
            (security.get("capabilities", {}).get("drop") == ["ALL"], "keeps capabilities"),
            (container["readinessProbe"]["httpGet"]["path"] == "/health", "is ready without a probe on /health"),
            (container["livenessProbe"]["httpGet"]["path"] == "/livez", "is alive without a probe on /livez"),
            (container["readinessProbe"]["timeoutSeconds"] > 20, "gives /health less than the 20 s that it may take"),
            (pod["terminationGracePeriodSeconds"] > int(container["args"][container["args"].index("--request-timeout") + 1]),
             "is killed before its texts have ended"),
        ]
        for holds, what in wanted:
            if not holds:
                yield f"{place}: {what}"
        yield from check_flags(place, container["args"])
        labels = deployment["template"]["metadata"]["labels"]
        selectors = [deployment["selector"]["matchLabels"], found["Service"]["spec"]["selector"],
                     found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
        if "PodMonitor" in found:
            selectors.append(found["PodMonitor"]["spec"]["selector"]["matchLabels"])
        for selector in selectors:
            if not selector or any(labels.get(key) != value for key, value in selector.items()):
                yield f"{place}: a selector {selector} does not match the pods' labels {labels}"
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        if mounts != {volume["name"] for volume in pod["volumes"]}:
            yield f"{place}: volumes and mounts differ"
        if variant == "default":
            continue
        target = found["HorizontalPodAutoscaler"]["spec"]
        if target["scaleTargetRef"]["name"] != found["Deployment"]["metadata"]["name"] or "replicas" in deployment:
            yield "autoscaler.yaml: it does not scale the deployment, or that sets its replicas itself"
        metric = target["metrics"][0]["pods"]["metric"]["name"].replace("_", ":", 1)
        if f'"{metric}"' not in (ROOT / "src/server/app.cc").read_text():
            yield f"autoscaler.yaml: the server has no metric {metric}"
        if "upstream-hash-by" not in str(found["Ingress"]["metadata"]["annotations"]):
            yield "ingress.yaml: requests are spread without regard to their prefix"
    for path in (CHART / "templates").glob("*.yaml"):
        if path.name not in seen:
            yield f"deploy/helm/redline/templates/{path.name}: no variant renders it"


def check_container():
    lines = [line for line in re.sub(r"\\\n\s*", " ", (DEPLOY / "Containerfile").read_text()).splitlines()
             if line and not line.startswith("#")]
    words = [line.split() for line in lines]
    if sum(w[0] == "FROM" for w in words) != 2:
        yield "Containerfile: it has one stage for building and one for running"
    users = [w[1] for w in words if w[0] == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*(:\d+)?", users[-1]):
        yield "Containerfile: USER must be a number other than 0"
    for w in words:
        for source in w[1:-1] if w[0] == "COPY" and not w[1].startswith("--from") else []:
            if not (ROOT / source).exists():
                yield f"Containerfile: COPY {source}: there is no such file"
        if w[0] in ("ENTRYPOINT", "CMD"):
            yield from check_flags("Containerfile", re.findall(r'"(--[^"]+)"', " ".join(w)))


def check_unit():
    text = (DEPLOY / "redline.service").read_text()
    settings = {}
    for line in text.splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    command = settings["ExecStart"][0].split()
    conf = dict(line.split("=", 1) for line in (DEPLOY / "serve.conf").read_text().splitlines() if line and line[0] != "#")
    for name in re.findall(r"\$\{?(\w+)", settings["ExecStart"][0]):
        if name not in conf:
            yield f"redline.service: {name} is not in serve.conf"
    yield from check_flags("redline.service", command + conf["FLAGS"].split())
    if int(settings["TimeoutStopSec"][0]) <= int(command[command.index("--request-timeout") + 1]):
        yield "redline.service: it is killed before its texts have ended"
    for key in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        if settings.get(key) != ["yes"]:
            yield f"redline.service: {key} must be yes"


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    output = (done.stdout + done.stderr).strip()
    return done.returncode, output


def check_with_tools():
    """What the tools of others say."""
    if shutil.which("hadolint"):
        status, output = run(["hadolint", DEPLOY / "Containerfile"])
        if status:
            yield output
    else:
        print("deploy: hadolint is not installed: the container recipe is not linted")
    if shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "redline.service"
            text = (DEPLOY / "redline.service").read_text()
            # The program and its settings are not installed here.
            text = text.replace("/usr/local/bin/redline", "/bin/true").replace("EnvironmentFile=/", "EnvironmentFile=-/")
            unit.write_text(text)
            status, output = run(["systemd-analyze", "verify", "--man=no", unit])
            ours = [line for line in output.splitlines() if "redline.service" in line]
            if ours:
                yield "\n".join(ours)
            status, output = run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit])
            if status and "exposure level" in output:
                yield "redline.service: " + output.splitlines()[-1]
    else:
        print("deploy: systemd-analyze is not installed: the unit is not verified")
    if shutil.which("helm"):
        status, output = run(["helm", "lint", "--strict", CHART])
        if status:
            yield output
        for variant, changes in VARIANTS.items():
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
                yaml.safe_dump(changes, values)
                values.flush()
                status, output = run(["helm", "template", "test", CHART, "-f", values.name])
            theirs = [m for m in yaml.safe_load_all(output) if m] if status == 0 else []
            if status or sorted(theirs, key=str) != sorted((m for _, _, m in manifests(changes)), key=str):
                yield f"helm renders other manifests ({variant}): {output[:2000] if status else 'see helm template'}"
    else:
        print("deploy: helm is not installed: the chart is rendered by tools/check_deploy.py only")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", action="store_true")
    if parser.parse_args().render:
        print("---\n".join(text.strip() + "\n" for _, text, _ in manifests({})))
        return 0
    problems = [p for check in (check_container, check_unit, check_chart, check_with_tools) for p in check()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
