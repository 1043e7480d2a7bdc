// Worked tasks for `redline help recipes` and docs/cli.md. A test runs all of them, in this order, in an empty folder.
#include "cli/command.h"

namespace redline::cli {
namespace {

struct Recipe {
  const char* task;
  std::vector<const char*> commands;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> table = {
      {"Continue a text. MODEL is a GGUF file or a Hugging Face folder; redline-tales is bundled.",
       {"redline run redline-tales \"Once upon a time\""}},
      {"The same text every time: no sampling, or a seed.",
       {"redline run redline-tales \"The sea\" --temperature 0 --max-tokens 40",
        "redline run redline-tales \"The sea\" --seed 7 --max-tokens 40"}},
      {"Text from another program, and the result for a script.",
       {"echo \"The cat was\" | redline run redline-tales - --max-tokens 20 --json"}},
      {"Generate an image. MODEL is a diffusers folder; redline-shapes is bundled and draws simple shapes.",
       {"redline image redline-shapes \"a large red circle on a blue background\" --seed 1 -o circle.png"}},
      {"Start from an image: the strength is the fraction of the steps that are run.",
       {"redline image redline-shapes \"a large yellow heart on a meadow\" --init-image circle.png --strength 0.8 -o "
        "heart.png"}},
      {"Generate faster: compute 10 of the 28 steps and forecast the others.",
       {"redline image redline-shapes \"a large red circle on a blue background\" --seed 1 --steps-budget 10 -o "
        "fast.png"}},
      {"What a file holds, and whether Redline runs it.",
       {"redline inspect redline-tales", "redline inspect redline-tales --metadata --tensors"}},
      {"Write a Hugging Face folder as one GGUF file, and run that.",
       {"redline convert redline-tales tales.gguf", "redline run tales.gguf \"Once\" --max-tokens 20"}},
      {"How fast a model is here, and how fast it could be.",
       {"redline bench redline-tales --prefill 128 --decode 32", "redline devices"}},
      {"How well a model predicts a text: its perplexity, lower is better.",
       {"redline run redline-tales \"One day\" --max-tokens 300 --ignore-eos --echo --quiet > story.txt",
        "redline eval redline-tales story.txt --context 64"}},
  };
  return table;
}

}  // namespace

std::string recipes_text() {
  std::string text;
  for (const Recipe& recipe : recipes()) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", recipe.task);
    for (const char* command : recipe.commands) text += fmt::format("    {}\n", command);
  }
  return text;
}

}  // namespace redline::cli
