#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Args {
  std::string model;
  std::optional<std::string> prompt;
  int64_t max_tokens = 256;
  int threads = 0;
  float top_p = 1;
  std::optional<float> temperature;
  std::optional<uint64_t> seed, open_seed;
  std::vector<std::string> stop;
  std::vector<int64_t> prefill = {128, 512};
  std::string dtype = "auto";
  bool json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "the model", {.aliases = {"-m", "--model"}});
    v.argument(prompt, "PROMPT", "the prompt", {.optional = true, .aliases = {"-p"}});
    v(max_tokens, "max-tokens", "N", "tokens",
      {.letter = 'n', .min = 0, .aliases = {"--n-predict"}, .hint = "tokens are counted"});
    v(threads, "threads", "N", "threads", {.letter = 't', .min = 0, .max = 1024});
    v(top_p, "top-p", "P", "mass", {.max = 1});
    v(temperature, "temperature", "T", "spread", {.min = 0, .max = 100});
    v(seed, "seed", "S", "seed");
    v(open_seed, "open-seed", "S", "seed", {.min = -1});
    v(stop, "stop", "TEXT", "stop");
    v(prefill, "prefill", "N,..", "lengths", {.min = 1});
    v(dtype, "dtype", "TYPE", "type", {.choices = {"auto", "f32"}});
    v(json, "json", "", "JSON", {.letter = 'j'});
    using Kind = ForeignFlags::Kind;
    v.foreign({.kind = Kind::kIgnored, .names = {"-ngl", "--gpu-layers"}, .takes_value = true, .answer = "no GPU"});
    v.foreign({.kind = Kind::kImplied, .names = {"-fa"}, .values = {"on", "off"}});
    v.foreign({.names = {"--chat-template"}, .takes_value = true, .answer = "there is no chat"});
  }
};

Result<Args> parse(std::vector<std::string> arguments) {
  Args args;
  OptionList options;
  args.visit(options);
  REDLINE_TRY(parse_options(options, arguments));
  return args;
}

std::string message(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
  return result.status().message();
}

TEST(Options, DefaultsStayWhenNothingIsGiven) {
  const Args a = parse({"m"}).value();
  EXPECT_EQ(a.model, "m");
  EXPECT_FALSE(a.prompt.has_value());
  EXPECT_EQ(a.max_tokens, 256);
  EXPECT_FALSE(a.temperature.has_value());
  EXPECT_THAT(a.prefill, ElementsAre(128, 512));
  EXPECT_FALSE(a.json);
}

TEST(Options, EverySpellingOfAValue) {
  const Args a = parse({"--max-tokens", "5", "m", "--threads=2", "hello", "--top-p=0.5", "--temperature", "1e-1",
                        "--seed", "18446744073709551615", "--stop", "a", "--stop=", "--stop=b=c", "--prefill", "1,2,3",
                        "--dtype=f32", "--json"})
                     .value();
  EXPECT_EQ(a.model, "m");
  EXPECT_EQ(a.prompt, "hello");
  EXPECT_EQ(a.max_tokens, 5);
  EXPECT_EQ(a.threads, 2);
  EXPECT_EQ(a.top_p, 0.5f);
  EXPECT_EQ(a.temperature, 0.1f);
  EXPECT_EQ(a.seed, UINT64_MAX);
  EXPECT_THAT(a.stop, ElementsAre("a", "", "b=c"));
  EXPECT_THAT(a.prefill, ElementsAre(1, 2, 3));
  EXPECT_EQ(a.dtype, "f32");
  EXPECT_TRUE(a.json);
  EXPECT_EQ(parse({"m", "-n", "7"}).value().max_tokens, 7);
  EXPECT_EQ(parse({"m", "-n7"}).value().max_tokens, 7);
  EXPECT_EQ(parse({"m", "-n=7"}).value().max_tokens, 7);
}

TEST(Options, DashesAreTextWhereTheyMustBe) {
  EXPECT_EQ(parse({"m", "-"}).value().prompt, "-");
  EXPECT_EQ(parse({"m", "--", "--json"}).value().prompt, "--json");
  EXPECT_EQ(parse({"--", "-m", "--help"}).value().prompt, "--help");
  EXPECT_THAT(parse({"m", "--stop", "-x"}).value().stop, ElementsAre("-x"));
  EXPECT_THAT(parse({"m", "--stop", "--"}).value().stop, ElementsAre("--"));
  EXPECT_EQ(parse({"", ""}).value().prompt, "");
}

TEST(Options, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(message({"m", "--temprature", "1"}), "unknown flag --temprature; did you mean --temperature?");
  EXPECT_EQ(message({"m", "--temprature=1"}), "unknown flag --temprature; did you mean --temperature?");
  EXPECT_EQ(message({"m", "-temperature", "1"}), "unknown flag -temperature; did you mean --temperature?");
  EXPECT_EQ(message({"m", "--hlep"}), "unknown flag --hlep; did you mean --help?");
  EXPECT_EQ(message({"m", "-zzz"}),
            "unknown flag -zzz; see redline --help; if it is text and no flag, put -- before it");
  EXPECT_THAT(message({"m", "--MODEL", "x"}), HasSubstr("unknown flag --MODEL"));
  EXPECT_THAT(message({"m", "-jn"}), HasSubstr("unknown flag -jn"));
  EXPECT_THAT(message({"m", "---"}), HasSubstr("unknown flag ---"));
  EXPECT_THAT(message({"m", "--=3"}), HasSubstr("unknown flag --"));
}

TEST(Options, MissingValues) {
  EXPECT_EQ(message({"m", "--seed"}), "flag --seed needs a value S");
  EXPECT_EQ(message({"m", "-n"}), "flag -n needs a value N");
  EXPECT_EQ(message({"m", "--stop", "--json"}),
            "flag --stop needs a value TEXT; the flag --json follows (write "
            "--stop=--json if that is the value)");
  EXPECT_EQ(message({"m", "--json=yes"}), "flag --json takes no value; got 'yes'");
  EXPECT_EQ(message({"m", "--seed="}), "flag --seed: '' is not a whole number");
}

TEST(Options, MalformedAndOutOfRangeNumbers) {
  EXPECT_EQ(message({"m", "--max-tokens", "1.5"}),
            "flag --max-tokens: '1.5' is not a whole number; tokens are counted");
  EXPECT_EQ(message({"m", "-n", "12x"}), "flag -n: '12x' is not a whole number; tokens are counted");
  EXPECT_EQ(message({"m", "--threads", " 1"}), "flag --threads: ' 1' is not a whole number");
  EXPECT_EQ(message({"m", "--threads", "-1"}), "flag --threads: -1 is out of range; allowed: 0 to 1024");
  EXPECT_EQ(message({"m", "--threads", "99999999999999999999"}),
            "flag --threads: 99999999999999999999 is too large for this flag");
  EXPECT_EQ(message({"m", "--threads", "2000"}), "flag --threads: 2000 is out of range; allowed: 0 to 1024");
  EXPECT_EQ(message({"m", "--top-p", "1.5"}), "flag --top-p: 1.5 is out of range; allowed: up to 1");
  EXPECT_EQ(message({"m", "--temperature", "warm"}), "flag --temperature: 'warm' is not a number");
  EXPECT_EQ(message({"m", "--temperature", "nan"}), "flag --temperature: 'nan' is not a number");
  EXPECT_EQ(message({"m", "--temperature", "inf"}), "flag --temperature: 'inf' is not a number");
  EXPECT_EQ(message({"m", "--temperature", "1e999"}), "flag --temperature: 1e999 is too large for this flag");
  EXPECT_EQ(message({"m", "--seed", "-1"}), "flag --seed: -1 is out of range; allowed: 0 or more");
  EXPECT_EQ(message({"m", "--prefill", "1,,2"}), "flag --prefill: '' is not a whole number");
  EXPECT_EQ(message({"m", "--prefill", "1,0"}), "flag --prefill: 0 is out of range; allowed: 1 or more");
  EXPECT_EQ(message({"m", "--dtype", "f23"}), "flag --dtype: 'f23' is not one of auto, f32; did you mean f32?");
}

TEST(Options, RepeatsMissingsAndExtras) {
  EXPECT_EQ(message({"m", "--seed", "1", "--seed=2"}), "flag --seed is given twice, with 1 and 2; give it once");
  EXPECT_EQ(message({"m", "-n", "1", "--max-tokens", "2"}),
            "flag --max-tokens is given twice, with 1 and 2; give it once");
  EXPECT_EQ(message({"m", "--json", "--json"}), "flag --json is given twice");
  EXPECT_EQ(message({}), "MODEL is missing; usage: redline [options] MODEL [PROMPT]");
  EXPECT_EQ(message({"m", "p", "q"}),
            "unexpected argument 'q' (a text with spaces needs quotes); usage: "
            "redline [options] MODEL [PROMPT]");
}

TEST(Options, NamesOfOtherPrograms) {
  const Args a = parse({"-m", "file", "-p", "text", "--n-predict", "3"}).value();
  EXPECT_EQ(a.model, "file");
  EXPECT_EQ(a.prompt, "text");
  EXPECT_EQ(a.max_tokens, 3);
  // An argument fills the place that no flag has filled, wherever it stands.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"text", "--model=file"}, {"-m", "file", "text"}, {"--model", "file", "--", "text"}}) {
    const Args b = parse(words).value();
    EXPECT_EQ(b.model, "file");
    EXPECT_EQ(b.prompt, "text");
  }
  EXPECT_EQ(parse({"m", "--max_tokens", "4"}).value().max_tokens, 4);
  EXPECT_EQ(message({"m", "-m"}), "flag -m needs a value MODEL");
  EXPECT_EQ(message({"-m", "a", "--model", "b"}), "flag --model is given twice, with a and b; give it once");
  EXPECT_EQ(message({"-m", "a", "b", "c"}).substr(0, 23), "unexpected argument 'c'");
  EXPECT_EQ(message({"m", "--n-predct", "1"}), "unknown flag --n-predct; did you mean --n-predict?");
}

TEST(Options, FlagsOfOtherProgramsWithoutAnEqual) {
  Args args;
  OptionList options;
  args.visit(options);
  const std::vector<std::string> arguments = {"m", "-ngl", "99", "-fa", "on", "-fa", "--gpu-layers=3", "p"};
  const auto parsed = parse_options(options, arguments);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_THAT(parsed->notes, ElementsAre("flag -ngl has no effect: no GPU", "flag --gpu-layers has no effect: no GPU"));
  EXPECT_EQ(args.prompt, "p");
  EXPECT_EQ(message({"m", "--chat-template", "x"}), "flag --chat-template: there is no chat");
  EXPECT_EQ(message({"m", "--chat_template=x"}), "flag --chat_template: there is no chat");
}

TEST(Options, FlagsWithoutEffectAreRefused) {
  struct Linked {
    std::string image, mask;
    bool json = false, quiet = false, all = false;
    std::vector<std::string> stops;
    void visit(OptionList& v) {
      v(image, "image", "FILE", "an image", {.letter = 'i'});
      v(mask, "mask", "FILE", "its mask", {.needs = {"image", "stop"}});
      v(json, "json", "", "JSON");
      v(quiet, "quiet", "", "no summary", {.letter = 'q', .not_with = {"json"}});
      v(stops, "stop", "TEXT", "stop");
    }
  };
  const auto parse_linked = [](std::vector<std::string> arguments) {
    Linked args;
    OptionList options;
    args.visit(options);
    return parse_options(options, arguments);
  };
  EXPECT_EQ(parse_linked({"--mask", "m"}).status().message(), "flag --mask has no effect without --image or --stop");
  EXPECT_TRUE(parse_linked({"--mask", "m", "-i", "x"}).ok());
  EXPECT_TRUE(parse_linked({"--stop", "a", "--stop", "b", "--mask", "m"}).ok());
  EXPECT_EQ(parse_linked({"--json", "-q"}).status().message(), "flag --quiet has no effect with --json");
  EXPECT_THAT(parse_linked({"-q", "--stop=a"}).value().given, ElementsAre("quiet", "stop"));
}

TEST(Options, ASeedOfMinusOneIsOpen) {
  EXPECT_FALSE(parse({"m", "--open-seed", "-1"}).value().open_seed.has_value());
  EXPECT_EQ(parse({"m", "--open-seed", "5"}).value().open_seed, 5u);
  EXPECT_EQ(message({"m", "--open-seed", "-2"}), "flag --open-seed: -2 is out of range; allowed: 0 or more");
}

TEST(Options, HelpWinsUnlessFlagsHaveEnded) {
  Args args;
  OptionList options;
  args.visit(options);
  for (const char* help : {"-h", "--help"}) {
    const std::vector<std::string> arguments = {"--nonsense", help};
    auto parsed = parse_options(options, arguments);
    ASSERT_TRUE(parsed.ok());
    EXPECT_TRUE(parsed->wants_help);
  }
}

}  // namespace
}  // namespace redline::cli
