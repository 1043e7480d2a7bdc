#!/usr/bin/env python3
"""What an addition costs: adds one component of each kind to a temporary copy of the tree and counts the files touched.

  check_costs.py [KIND...]     all kinds, or those named; fails when one touches more files than its bracket
  check_costs.py --build       also configures the copy and compiles every touched source
  check_costs.py --table       prints the Markdown table of docs/architecture.md
  check_costs.py --list        the kinds

Each addition is a function below that writes the component's own file, adds its row to the list of its registry, and
writes its test. Then the count comes from comparing the copy with the original, not from what the function says.
"""
import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
COPIED = ("CMakeLists.txt", "cmake", "include", "src", "tests", "bench", "examples", "fuzz")
LEFT_OUT = shutil.ignore_patterns("golden", "corpus", "seeds", "*.zip", "__pycache__")


class Tree:
    """A copy of the sources in which something is added."""

    def __init__(self, root):
        self.root = root

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def write(self, name, text):
        path = self.root / name
        assert path.parent.is_dir(), f"{path.parent} does not exist"
        path.write_text(text, encoding="utf-8")

    def replace(self, name, pattern, to):
        text, count = re.subn(pattern, to, self.read(name), count=1, flags=re.S)
        if count != 1:
            raise ValueError(f"{name}: nothing matches {pattern}")
        self.write(name, text)

    def add_row(self, name, row_type, array, symbol):
        """Names a row in the list of its registry: the declaration and the array."""
        self.replace(name, rf"(extern const {row_type} [^;]*);", rf"\1, {symbol};")
        self.replace(name, rf"({array}\[\] = {{[^;]*?),?(\s*}};)", rf"\1, &{symbol}\2")

    def touched(self):
        """Files that differ from the original, or are new."""
        found = []
        for path in self.root.rglob("*"):
            name = path.relative_to(self.root)
            if not path.is_file() or name.parts[0] == "build":
                continue
            original = ROOT / name
            if not original.is_file() or original.read_bytes() != path.read_bytes():
                found.append(str(name))
        return sorted(found)


TEST = """#include <gtest/gtest.h>

#include "{header}"

namespace redline {{
namespace {{

TEST({suite}, IsInTheRegistry) {{ {body} }}

}}  // namespace
}}  // namespace redline
"""


def add_text_family(tree):
    tree.write("src/models/starling.cc", """// Starling: Llama's layers with biases on queries, keys and values.
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  return build_llama_decoder("starling", std::move(c), checkpoint, {.qkv = true});
}

}  // namespace

extern const ModelFamily kStarlingFamily = {
    .model_type = "starling",
    .architecture = "StarlingForCausalLM",
    .gguf = {.architecture = "starling", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer},
    .build = build,
};

}  // namespace redline
""")
    tree.add_row("src/models/registry.cc", "ModelFamily", "kFamilies", "kStarlingFamily")
    tree.write("tests/models/starling_test.cc", TEST.format(
        header="models/registry.h", suite="Starling", body='EXPECT_TRUE(find_gguf_family("starling").ok());'))


def add_diffusion_family(tree):
    tree.write("src/models/starling.cc", """// Starling: a pipeline of one text encoder, and a denoiser that adds nothing to its latents.
#include "models/dit_blocks.h"
#include "models/image_registry.h"

namespace redline {
namespace {

Result<DenoiserModel> build(const Checkpoint& checkpoint, BlockSplit /*blocks*/) {
  DenoiserModel model;
  model.family = "starling";
  model.in_channels = model.out_channels = model.latent_channels = 4;
  if (checkpoint.tensors.empty()) return invalid_argument("{}: there are no tensors", checkpoint.path);
  return model;
}

Result<PromptConditions> condition(const PromptEncoders& encoders, const DenoiserModel& /*model*/,
                                   std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * encoder, encoders.find("text_encoder"));
  REDLINE_ASSIGN(EncodedText text, encoder->encode(prompts, text_tokens, /*mask_padding=*/false));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  c.add_warnings(text);
  c.values["text"] = std::move(text.hidden);
  return c;
}

constexpr std::string_view kDenoiserClasses[] = {"StarlingTransformer2DModel"};
constexpr std::string_view kPipelineClasses[] = {"StarlingPipeline"};

}  // namespace

extern const DenoiserRow kStarlingDenoiser = {
    .class_names = kDenoiserClasses,
    .build = build,
};

extern const PipelineRow kStarlingPipeline = {
    .class_names = kPipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "StarlingTransformer2DModel",
    .condition = condition,
    .side = 1024,
    .num_inference_steps = 20,
    .guidance_scale = 4,
    .max_sequence_length = 256,
};

}  // namespace redline
""")
    registry = "src/models/image_registry.cc"
    tree.add_row(registry, "DenoiserRow", "kDenoisers", "kStarlingDenoiser")
    tree.add_row(registry, "PipelineRow", "kPipelines", "kStarlingPipeline")
    tree.write("tests/models/starling_test.cc", TEST.format(
        header="models/image_registry.h", suite="Starling",
        body='EXPECT_TRUE(find_pipeline("StarlingPipeline").ok());'))


def add_solver(tree):
    tree.write("src/diffusion/solvers/starling.cc", """// Starling: one Euler step to the image itself, for a test of costs.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_exploding.h"

namespace redline {
namespace {

class Starling final : public VarianceExploding {
 public:
  explicit Starling(SolverFields& fields) : VarianceExploding(fields, {"epsilon"}) {}

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_ASSIGN(Layout layout, spaced(plan));
    layout.sigmas.push_back(0);
    set_init_noise(layout);
    return layout;
  }
  bool adds_model_output() const override { return true; }
  void advance(const Step& s, NoiseSource&) override {
    const float change = layout().sigmas[s.index + 1] - layout().sigmas[s.index];
    for (size_t i = 0; i < s.x.size(); ++i) s.x[i] += change * s.output[i];
  }
};

}  // namespace

extern const SolverRow kStarlingSolver = {
    .name = "starling",
    .class_name = "StarlingScheduler",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Starling>,
};

}  // namespace redline
""")
    tree.add_row("src/diffusion/solver.cc", "SolverRow", "kSolvers", "kStarlingSolver")
    tree.write("tests/diffusion/starling_solver_test.cc", TEST.format(
        header="diffusion/solver.h", suite="Starling",
        body='EXPECT_TRUE(Solver::make({{"_class_name", "StarlingScheduler"}}).ok());'))


def add_sampler(tree):
    """Keeps tokens at least half as likely as the best, where the new member of SamplingOptions says so."""
    tree.replace("include/redline/text.h", r"(  float min_p = 0.0f;[^\n]*\n)", r"\1  float starling = 0;  ///< 0: off\n")
    tree.write("src/llm/samplers/starling.cc", """// Starling: tokens at least half as likely as the most likely one, for a test of costs.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Starling final : public SamplerStep {
 public:
  explicit Starling(const SamplerContext& c) : share_(c.options.starling / 2) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_min_p(share_); }

 private:
  float share_;
};

constexpr SamplingParameter kStarlingParameters[] = {
    {.name = "starling",
     .member = &SamplingOptions::starling,
     .symbol = "X",
     .help = "drop tokens less likely than X / 2 times the most likely one; 0 is off",
     .allowed = "0 (off) to 1",
     .range = {0, 1},
     .input = {0, 1},
     .neutral = 0},
};

}  // namespace

extern const SamplerRow kStarlingSampler = {
    .name = "starling",
    .kind = SamplerKind::kTruncation,
    .parameters = kStarlingParameters,
    .is_active = [](const SamplingOptions& o) { return o.starling > 0; },
    .make = make_sampler_step<Starling>,
};

}  // namespace redline
""")
    tree.add_row("src/llm/samplers/registry.cc", "SamplerRow", "kSamplers", "kStarlingSampler")
    tree.write("tests/llm/starling_test.cc", TEST.format(
        header="llm/samplers/registry.h", suite="Starling", body='EXPECT_TRUE(sampler_name("starling").ok());'))


def add_step_cache_rule(tree):
    tree.write("src/diffusion/step_cache/rules/starling_rule.cc", """// starling: every step after the first is skipped.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kParameters[] = {
    {"warmup", ParameterKind::kInteger, "1", 1, 1e6, "steps that are computed first", /*sets_cost=*/true},
};

Result<RulePlan> plan(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kNetwork;
  plan.decision = Decision::kAlways;
  plan.guards.first.count = [warmup = values.integer("warmup")](int64_t) { return warmup; };
  return plan;
}

}  // namespace

extern const RuleRow kStarlingRule = {
    .name = "starling",
    .summary = "every step after the first is skipped",
    .source = "-",
    .parameters = kParameters,
    .knob = {TuningKnob::Kind::kInteger, "warmup", 1, 1000},
    .plan = plan,
};

}  // namespace redline
""")
    tree.add_row("src/diffusion/step_cache/rule.cc", "RuleRow", "kRules", "kStarlingRule")
    tree.write("tests/diffusion/step_cache/starling_rule_test.cc", TEST.format(
        header="diffusion/step_cache/rule.h", suite="Starling", body='EXPECT_TRUE(find_rule("starling").ok());'))


def add_block_format(tree):
    """Q5_1 under another name and number."""
    text = tree.read("src/tensor/blocks/q5_1.h").replace("Q5_1", "QX_1").replace("q5_1", "qx_1")
    tree.write("src/tensor/blocks/qx_1.h", text.replace("kGgufType = 7", "kGgufType = 90"))
    formats = "src/tensor/blocks/all.h"
    tree.replace(formats, r'(#include "tensor/blocks/tq1_0.h"\n)', r'#include "tensor/blocks/qx_1.h"\n\1')
    tree.replace(formats, r"F\(MXFP4\)", "F(MXFP4) F(QX_1)")
    tree.write("tests/tensor/qx_1_test.cc", TEST.format(
        header="tensor/dtype.h", suite="Qx1", body='EXPECT_TRUE(dtype_from_name("qx_1").ok());'))


def add_op(tree):
    """y = -x: shape rule and reference, lowering without a kernel of its own."""
    tree.write("src/graph/ops/starling.h", """#pragma once

#include "graph/graph.h"

namespace redline {

/// y = -x, x [rows, cols] f32.
Value starling(GraphBuilder& g, Value x);

extern const OpDef kStarling;

}  // namespace redline
""")
    tree.write("src/graph/ops/starling.cc", """#include "graph/ops/starling.h"

#include "graph/reference.h"

namespace redline {

Value starling(GraphBuilder& g, Value x) {
  if (!x.valid()) return {};
  return g.add(kStarling, {x}, DType::kF32, g.info(x).shape);
}

namespace {

Status reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = -c.in(0).data[i];
  return {};
}

}  // namespace

const OpDef kStarling = {.name = "starling", .reference = reference};

}  // namespace redline
""")
    tree.write("src/backends/cpu/lower/starling.cc", """#include "graph/ops/starling.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct StageParams {
  int64_t cols;
  Operand<const float> x;
  Operand<float> y;
};

void run(const StageParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t i = tile.row_begin * p.cols; i < tile.row_end * p.cols; ++i) p.y[i] = -p.x[i];
}

Status lower(LowerContext& c) {
  auto params = std::make_shared<StageParams>();
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace

extern const CpuLowering kStarlingLowering = {&kStarling, lower};

}  // namespace redline
""")
    tree.add_row("src/backends/cpu/lowerings.cc", "CpuLowering", "kLowerings", "kStarlingLowering")
    tree.write("tests/graph/ops/starling_test.cc", TEST.format(
        header="backends/cpu/lowering.h\"\n#include \"graph/ops/starling.h", suite="Starling",
        body='EXPECT_NE(find_cpu_lowering(&kStarling), nullptr);'))


# kind -> (what adds it, most files that it may touch, what they are).
ADDITIONS = {
    "op": (
        add_op, 5,
        "`graph/ops/NAME.{h,cc}`, `backends/cpu/lower/NAME.cc`, its row in `lowerings.cc`, a test; a kernel of its own adds its "
        "source and its entry in `cpu_kernels.h` and `table.kernel.cc`"),
    "text family": (add_text_family, 3, "`models/NAME.cc` with its row, the list in `models/registry.cc`, a test"),
    "diffusion family": (
        add_diffusion_family, 3, "`models/NAME.cc` with its rows, the lists in `models/image_registry.cc`, a test"),
    "solver": (add_solver, 3, "`diffusion/solvers/NAME.cc` with its row, the list in `diffusion/solver.cc`, a test"),
    "sampler": (
        add_sampler, 4,
        "`llm/samplers/NAME.cc` with its row and parameters (flags and request fields are made from these), the list in "
        "`llm/samplers/registry.cc`, its member in `SamplingOptions`, a test; C and Python have the member in their structs"),
    "step-cache rule": (
        add_step_cache_rule, 3,
        "`diffusion/step_cache/rules/NAME_rule.cc` with its row, the list in `step_cache/rule.cc`, a test"),
    "block format": (
        add_block_format, 3,
        "`tensor/blocks/NAME.h`, its name and `#include` in `blocks/all.h`, a test"),
}


def copy_tree(to):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=LEFT_OUT)
        elif source.is_file():
            shutil.copy(source, to / name)


def compile_touched(tree, sources):
    """Configures the copy and compiles `sources` with the commands of its build. Gives what went wrong, or ""."""
    build = tree.root / "build"
    configure = subprocess.run(
        ["cmake", "-S", tree.root, "-B", build, "-DREDLINE_TESTS=ON", "-DREDLINE_UNITY=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
         "-DCMAKE_BUILD_TYPE=Debug", "--log-level=WARNING"], text=True, capture_output=True)
    if configure.returncode:
        return configure.stderr
    commands = {c["file"]: c for c in json.loads((build / "compile_commands.json").read_text())}
    for source in sources:
        entry = commands.get(str(tree.root / source))
        if entry is None:
            return f"{source} is in no target"
        command = shlex.split(entry["command"])
        pathlib.Path(entry["directory"], command[command.index("-o") + 1]).parent.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(command, cwd=entry["directory"], text=True, capture_output=True)
        if run.returncode:
            return run.stderr
    return ""


def measure(kind, build):
    """(files touched, what went wrong or "")."""
    with tempfile.TemporaryDirectory(prefix="redline-costs-") as folder:
        tree = Tree(pathlib.Path(folder).resolve() / "tree")
        tree.root.mkdir()
        copy_tree(tree.root)
        ADDITIONS[kind][0](tree)
        files = tree.touched()
        sources = [name for name in files if name.endswith(".cc")]
        # A header is compiled through a source that includes it.
        if kind == "block format":
            sources.append("src/tensor/dtype.cc")
        return files, compile_touched(tree, sources) if build else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(ADDITIONS))
        return 0
    unknown = [kind for kind in args.kinds if kind not in ADDITIONS]
    if unknown:
        print(f'check_costs: there is no kind "{unknown[0]}"; the kinds are: {", ".join(ADDITIONS)}', file=sys.stderr)
        return 2
    failed = False
    if args.table:
        print("| to add | files | which |\n|---|---|---|")
    for kind in args.kinds or ADDITIONS:
        _, bracket, which = ADDITIONS[kind]
        files, error = measure(kind, args.build)
        if args.table:
            print(f"| {kind} | {len(files)} | {which} |")
        else:
            print(f"{kind}: {len(files)} of at most {bracket} files: {', '.join(files)}")
        if len(files) > bracket:
            print(f"check_costs: a {kind} touches more files than its bracket", file=sys.stderr)
        if error:
            print(f"check_costs: {kind}: {error}", file=sys.stderr)
        failed |= len(files) > bracket or bool(error)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
