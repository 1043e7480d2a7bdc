// Prompts of tokens and embedding rows: their keys and positions, their cached state, and the steps that they feed.
#include "redline/prompt.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "graph/ops/embedding.h"
#include "llm/llm_engine.h"
#include "llm/next_position.h"
#include "models/registry.h"
#include "models/text/llama.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "tensor/weight_traits.h"

namespace redline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> prompt_values(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(static_cast<float>(i * 7 + seed * 131)) * 0.1f + static_cast<float>(i % 3) * 0.01f);
  return values;
}

EmbeddingRows rows_of(int64_t rows, int64_t hidden_size, int seed) {
  return EmbeddingRows::of(prompt_values(rows * hidden_size, seed), hidden_size);
}

/// An image of height x width patches in M-RoPE.
EmbeddingRows image_of(int32_t height, int32_t width, int64_t hidden_size, int seed) {
  EmbeddingRows rows = rows_of(int64_t{height} * width, hidden_size, seed);
  rows.axes = 3;
  for (int32_t y = 0; y < height; ++y)
    for (int32_t x = 0; x < width; ++x) rows.positions.insert(rows.positions.end(), {0, y, x});
  return rows;
}

std::vector<int64_t> positions_of(const PromptView& prompt, int64_t axis) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < prompt.size(); ++i) positions.push_back(prompt.position(i, axis));
  return positions;
}

TEST(Prompt, TokensConvertAndAreTheirOwnKeys) {
  const Prompt prompt = std::vector<int32_t>{5, 9, 3};
  EXPECT_THAT(prompt.keys(), ElementsAre(5U, 9U, 3U));
  EXPECT_EQ(prompt.size(), 3U);
  EXPECT_FALSE(prompt.has_embeddings());
  EXPECT_TRUE(prompt == Prompt({5, 9, 3}));
  EXPECT_FALSE(prompt == Prompt({5, 9}));
  EXPECT_THAT(positions_of(prompt, 2), ElementsAre(0, 1, 2));
  EXPECT_EQ(PromptView(prompt).subview(1, 2), PromptView(std::vector<int32_t>{9, 3}));
  for (const int32_t token : {0, 1, INT32_MAX}) EXPECT_TRUE(is_token_key(token_key(token)));
}

TEST(Prompt, KeysOfRowsDependOnTheMediaTheRowAndItsPosition) {
  const auto keys = [](EmbeddingRows rows) {
    Prompt prompt;
    EXPECT_TRUE(prompt.append(std::move(rows)).ok());
    return std::vector<ContentKey>(prompt.keys().begin(), prompt.keys().end());
  };
  EmbeddingRows first = rows_of(4, 3, 1);
  const std::vector<ContentKey> plain = keys(first);
  for (const ContentKey key : plain) EXPECT_FALSE(is_token_key(key));
  EXPECT_NE(plain[0], plain[1]);
  EXPECT_EQ(keys(rows_of(4, 3, 1)), plain) << "the hash is one of the values";
  EXPECT_NE(keys(rows_of(4, 3, 2))[0], plain[0]);
  EmbeddingRows token = first;
  token.placeholder = 7;
  EXPECT_EQ(keys(token), plain);
  EmbeddingRows named = first, part = rows_of(2, 3, 8);
  named.media_hash = part.media_hash = 77;
  part.media_offset = 2;
  EXPECT_EQ(keys(part)[0], keys(named)[2]);
  EmbeddingRows numbered = first, next = first;
  numbered.media_hash = 1;
  numbered.media_offset = 256;
  next.media_hash = 257;
  EXPECT_NE(keys(numbered)[0], keys(next)[0]) << "media that a caller numbers";
  numbered.media_offset = std::numeric_limits<int64_t>::max();
  EXPECT_NE(keys(numbered)[0], keys(numbered)[1]);
  EmbeddingRows whole = first, half = rows_of(2, 3, 1);
  whole.media_hash = half.media_hash = 77;
  whole.positions = {0, 0, 1, 1};
  half.media_offset = 2;
  half.positions = {1, 1};
  EXPECT_NE(keys(half)[0], keys(whole)[2]) << "positions count from where the rows begin";
  EmbeddingRows placed = first;
  placed.positions = {0, 1, 2, 2};
  EXPECT_NE(keys(placed)[3], plain[3]);
  EmbeddingRows layers = named;
  layers.layer_rows = {first.values};
  EXPECT_NE(keys(layers)[0], keys(named)[0]);
}

TEST(Prompt, TextGoesOnAfterTheLargestPositionOfAnImage) {
  Prompt prompt = {5, 6};
  EXPECT_TRUE(prompt.append(image_of(2, 3, 4, 1)).ok());
  prompt.append(std::vector<int32_t>{7});
  EXPECT_TRUE(prompt.append(rows_of(2, 4, 1)).ok());  // without positions: like tokens
  prompt.push_back(8);
  EXPECT_THAT(positions_of(prompt, 0), ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8));
  EXPECT_THAT(positions_of(prompt, 1), ElementsAre(0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8));
  EXPECT_THAT(positions_of(prompt, 2), ElementsAre(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8));
  const PromptView view = prompt;
  EXPECT_EQ(view.position_after(0), 0);
  EXPECT_EQ(view.position_after(3), 3) << "one row of the image";
  EXPECT_EQ(view.position_after(8), 5);
  EXPECT_EQ(view.position_after(12), 9);
  // A part that begins within the image has the positions of the whole.
  const PromptView part = view.subview(4, 6);
  EXPECT_THAT(positions_of(part, 2), ElementsAre(4, 2, 3, 4, 5, 6));
  std::vector<int32_t> copied(18);
  part.copy_positions(3, 100, copied.data());
  EXPECT_THAT(std::span(copied).first(6), ElementsAre(102, 102, 104, 102, 103, 102));
  EXPECT_EQ(part.num_rows(), 5);
  ASSERT_EQ(part.row_spans().size(), 2U);
  EXPECT_EQ(part.row_spans()[0].first_row, 2);
  EXPECT_EQ(part.row_spans()[1].place, 5U);
  EXPECT_EQ(part.key(1), prompt.keys()[5]);

  Prompt twice = prompt;
  twice.append_prompt(prompt);
  EXPECT_EQ(twice.size(), 24U);
  EXPECT_EQ(PromptView(twice).position(14, 2), 11);
  EXPECT_EQ(PromptView(twice).subview(12, 12), view);
  prompt.truncate(4);
  prompt.push_back(9);
  EXPECT_THAT(positions_of(prompt, 0), ElementsAre(0, 1, 2, 2, 4)) << "after the second patch of the image";
}

TEST(Prompt, ASequenceGoesOnWhereverItIsCut) {
  Prompt prompt = {5, 6};
  EXPECT_TRUE(prompt.append(image_of(3, 2, 4, 1)).ok());
  prompt.append(std::vector<int32_t>{7, 8});
  const PromptView view = prompt;
  for (size_t cut = 0; cut <= prompt.size(); ++cut) {
    NextPosition next;
    next.append(3, view.subview(0, cut));
    next.append(3 + static_cast<int64_t>(cut), view.subview(cut, prompt.size() - cut));
    for (size_t n = 0; n <= prompt.size(); ++n)
      EXPECT_EQ(next.at(3 + static_cast<int64_t>(n)), 3 + view.position_after(n)) << cut << " " << n;
    next.truncate(3 + 4);
    EXPECT_EQ(next.at(7), 3 + view.position_after(4));
    EXPECT_EQ(next.at(9), 3 + view.position_after(4) + 2) << "tokens after a truncation";
  }
}

TEST(Prompt, ImpossibleRowsAreErrors) {
  const auto message = [](const std::function<void(EmbeddingRows&)>& change) {
    EmbeddingRows rows = rows_of(2, 3, 1);
    change(rows);
    Prompt prompt = {1};
    const Status status = prompt.append(std::move(rows));
    EXPECT_EQ(prompt.size(), 1U);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message();
  };
  EXPECT_THAT(message([](EmbeddingRows& r) { r.rows = 0; }), HasSubstr("embeddings of 0 rows of 3"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.hidden_size = 0; }), HasSubstr("of 0 numbers"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.values = nullptr; }), HasSubstr("no values"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.placeholder = -1; }), HasSubstr("placeholder -1"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.media_offset = -1; }), HasSubstr("media_offset -1"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.positions = {0, 1, 2}; }), HasSubstr("3 positions; 2 rows on 1 axes"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.positions = {0, -1}; }), HasSubstr("position -1"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.axes = 5; }), HasSubstr("on 5 axes"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r.layer_rows = {nullptr}; }), HasSubstr("layer_rows without"));
  EXPECT_THAT(message([](EmbeddingRows& r) { r = EmbeddingRows::of({0, NAN, 0}, 3); }), HasSubstr("NaN"));
  EXPECT_THAT(message([](EmbeddingRows& r) {
                r.layer_rows = {EmbeddingRows::of({0, 0, 0, INFINITY, 0, 0}, 3).values};
              }),
              HasSubstr("of layer_rows is NaN or infinite"));
}

// --- Engines ---

Checkpoint open_prompt_checkpoint(const std::string& name) {
  auto checkpoint = Checkpoint::open(golden_root() + "/" + name);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  return std::move(checkpoint).value();
}

/// Returns the rows that the first layer of a model reads for these tokens.
EmbeddingRows embeddings_of(const std::string& name, std::span<const int32_t> tokens) {
  const auto model = build_language_model(open_prompt_checkpoint(name));
  EXPECT_TRUE(model.ok());
  const Graph& graph = model->graph;
  const auto lookup =
      std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.def == &kEmbedding; });
  const WeightSource& weight = graph.value(lookup->inputs[0]).weight;
  weight.need_all();
  const int64_t size = model->config.hidden_size;
  std::vector<float> values(tokens.size() * static_cast<size_t>(size));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto* row = static_cast<const uint8_t*>(weight.view.data) + tokens[i] * row_bytes(weight.view.dtype, size);
    unpack_row(weight.view.dtype, row, values.data() + static_cast<int64_t>(i) * size, size);
  }
  for (float& value : values) value *= model->config.embedding_scale;
  return EmbeddingRows::of(std::move(values), size);
}

const std::vector<int32_t> kPromptTokens = {5, 9, 3, 11, 8, 2, 40, 7, 1, 30, 12, 13, 14};
constexpr size_t kRowsBegin = 2, kNumRows = 7;

/// kPromptTokens with some of the tokens as rows.
Prompt with_rows(const std::string& name) {
  const auto tokens = std::span(kPromptTokens);
  Prompt prompt(tokens.first(kRowsBegin));
  EXPECT_TRUE(prompt.append(embeddings_of(name, tokens.subspan(kRowsBegin, kNumRows))).ok());
  prompt.append(tokens.subspan(kRowsBegin + kNumRows));
  return prompt;
}

TextEngineOptions taking_embeddings(Precision dtype = Precision::kF32, int64_t max_batch_tokens = 512) {
  TextEngineOptions options;
  options.dtype = dtype;
  options.max_batch_tokens = max_batch_tokens;
  options.threads = 2;
  options.prompt_embeddings = true;
  return options;
}

std::vector<float> logits_of(TextEngine& engine, const PromptView& prompt) {
  auto sequence = engine.new_sequence();
  EXPECT_TRUE(sequence.ok());
  auto logits = (*sequence)->forward(prompt, true);
  EXPECT_TRUE(logits.ok()) << logits.status().to_string();
  return logits.ok() ? std::move(logits).value() : std::vector<float>();
}

// The rows are those of the embedding table, so all logits have the same bits: in one step, and cut anywhere.
TEST(PromptEmbeddings, RowsOfTheTableGiveTheBitsOfTheirTokens) {
  for (const std::string name : {"llama_gqa", "gemma2", "gemma3", "gpt2", "qwen3_moe", "mistral_window", "qwen3_5"}) {
    const Prompt prompt = with_rows(name);
    for (const Precision dtype : {Precision::kF32, Precision::kAuto})
      for (const int64_t step : {512, 3, 1}) {
        TextEngineOptions options = taking_embeddings(dtype, step);
        const auto taking = open_engine(golden_root() + "/" + name, options);
        options.prompt_embeddings = false;
        const auto plain = open_engine(golden_root() + "/" + name, options);
        ASSERT_TRUE(taking && plain);
        EXPECT_TRUE(taking->info().takes_embeddings);
        EXPECT_FALSE(plain->info().takes_embeddings);
        const std::vector<float> want = logits_of(*plain, kPromptTokens);
        EXPECT_EQ(logits_of(*taking, kPromptTokens), want) << name << " " << step << ": plain tokens";
        EXPECT_EQ(logits_of(*taking, prompt), want) << name << " " << step;
      }
  }
}

TEST(PromptEmbeddings, EmulatedDevicesAndTheInterpreterTakeThem) {
  const Prompt prompt = with_rows("llama_gqa");
  for (const bool interprets : {false, true}) {
    TextEngineOptions options = taking_embeddings();
    options.use_interpreter = interprets;
    options.device = interprets ? "cpu" : "emu";
    const auto engine = open_engine(golden_root() + "/llama_gqa", options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(logits_of(*engine, prompt), logits_of(*engine, kPromptTokens)) << options.device;
  }
}

TEST(PromptEmbeddings, RequestsSequencesAndBatchesTakeThem) {
  const auto engine = open_engine(golden_root() + "/llama_gqa", taking_embeddings());
  ASSERT_TRUE(engine);
  const Prompt prompt = with_rows("llama_gqa");
  GenerateRequest request;
  request.prompt = prompt;
  request.max_tokens = 8;
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1.0f;
  const auto with = engine->generate(request);
  request.prompt = kPromptTokens;
  const auto without = engine->generate(request);
  ASSERT_TRUE(with.ok() && without.ok()) << with.status().to_string();
  EXPECT_EQ(with->tokens, without->tokens);
  EXPECT_EQ(with->prompt_tokens, std::ssize(kPromptTokens));
  BeamSearchRequest search;
  search.prompt = prompt;
  search.beam_width = 2;
  search.max_tokens = 4;
  const auto beams = beam_search(*engine, search);
  search.prompt = kPromptTokens;
  const auto plain = beam_search(*engine, search);
  ASSERT_TRUE(beams.ok() && plain.ok()) << beams.status().to_string();
  EXPECT_EQ((*beams)[0].tokens, (*plain)[0].tokens);

  // Two sequences in one step: a part of the prompt that begins within the rows, and plain tokens.
  const PromptView view = prompt;
  const auto vocab = static_cast<size_t>(engine->info().vocab_size);
  auto a = engine->new_sequence().value(), b = engine->new_sequence().value();
  ASSERT_TRUE(a->append(view.subview(0, 5), {}).ok());
  std::vector<float> logits(2 * vocab);
  BatchEntry entries[] = {{b.get(), kPromptTokens, std::span(logits).first(vocab)},
                          {a.get(), view.subview(5, prompt.size() - 5), std::span(logits).subspan(vocab)}};
  const Status status = engine->run_batch(entries);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + static_cast<int64_t>(vocab),
                         logits.begin() + static_cast<int64_t>(vocab)));
  EXPECT_EQ(a->length(), std::ssize(kPromptTokens));
}

// Penalties count tokens; placeholders are none.
TEST(PromptEmbeddings, PenaltiesSeeNoPlaceholders) {
  const auto engine = open_engine(golden_root() + "/llama_gqa", taking_embeddings());
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = {5};
  EmbeddingRows rows = embeddings_of("llama_gqa", std::vector<int32_t>{9, 9, 9});
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1e6f;
  const auto first = [&](int32_t placeholder) {
    EmbeddingRows placed = rows;
    placed.placeholder = placeholder;
    request.prompt = {5};
    EXPECT_TRUE(request.prompt.append(placed).ok());
    return engine->generate(request)->tokens.at(0);
  };
  const int32_t token = first(0);
  EXPECT_EQ(first(token), token);
}

TEST(PromptEmbeddings, EqualPlaceholdersOfDifferentMediaShareNoPage) {
  const TemporaryFolder folder;
  const auto run = [&](TextEngine& engine, const Prompt& prompt) {
    GenerateRequest request;
    request.prompt = prompt;
    request.max_tokens = 4;
    request.sampling.temperature = 0;
    request.ignore_stop_tokens = true;
    auto result = engine.generate(request);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? std::move(result).value() : GenerateResult();
  };
  const auto prompt_of = [](int seed) {
    std::vector<int32_t> begin(20, 5);
    Prompt prompt = std::move(begin);
    EXPECT_TRUE(prompt.append(rows_of(30, 32, seed)).ok());
    prompt.append(std::vector<int32_t>(14, 6));
    return prompt;
  };
  const Prompt one = prompt_of(1), other = prompt_of(2);
  EXPECT_EQ(one.tokens(), other.tokens());
  TextEngineOptions options = taking_embeddings();
  options.prefix_cache = false;
  const auto uncached = open_engine(golden_root() + "/llama_gqa", options);
  options.prefix_cache = true;
  options.cache_folder = folder.path();
  ASSERT_TRUE(uncached);
  {
    const auto engine = open_engine(golden_root() + "/llama_gqa", options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(run(*engine, one).cached_tokens, 0);
    const GenerateResult same = run(*engine, one), different = run(*engine, other);
    EXPECT_EQ(same.cached_tokens, 63) << "all but the last token";
    EXPECT_EQ(different.cached_tokens, 20) << "the tokens before the rows";
    EXPECT_EQ(same.tokens, run(*uncached, one).tokens);
    EXPECT_EQ(different.tokens, run(*uncached, other).tokens);
    // A text with the placeholder token in place of the rows is another one too.
    EXPECT_EQ(run(*engine, Prompt(one.tokens())).cached_tokens, 20);
  }
  // An engine that has computed nothing reads the rows' pages from the disk.
  const auto engine = open_engine(golden_root() + "/llama_gqa", options);
  ASSERT_TRUE(engine);
  EXPECT_EQ(run(*engine, prompt_of(3)).cached_tokens, 0);
  const GenerateResult again = run(*engine, one);
  EXPECT_EQ(again.cached_tokens, 32) << "a whole page";
  EXPECT_EQ(again.tokens, run(*uncached, one).tokens);
}

TEST(PromptEmbeddings, PromptsThatDoNotFitTheModelAreErrors) {
  const auto engine = open_engine(golden_root() + "/llama_gqa", taking_embeddings());
  TextEngineOptions options = taking_embeddings();
  options.prompt_embeddings = false;
  const auto plain = open_engine(golden_root() + "/llama_gqa", options);
  ASSERT_TRUE(engine && plain);
  const auto status = [&](TextEngine& on, EmbeddingRows rows) {
    GenerateRequest request;
    EXPECT_TRUE(request.prompt.append(std::move(rows)).ok());
    const Status generated = on.generate(request).status();
    auto sequence = on.new_sequence();
    const Status appended = (*sequence)->append(request.prompt, {});
    EXPECT_EQ(generated.message(), appended.message());
    return generated;
  };
  EXPECT_EQ(status(*plain, rows_of(2, 32, 1)).code(), Code::unsupported);
  EXPECT_THAT(status(*plain, rows_of(2, 32, 1)).message(), HasSubstr("prompt_embeddings"));
  EXPECT_THAT(status(*engine, rows_of(2, 31, 1)).message(),
              HasSubstr("rows of 31 numbers; the model's hidden_size is 32"));
  EXPECT_THAT(status(*engine, image_of(2, 2, 32, 1)).message(), HasSubstr("on 3 axes; the model's positions have 1"));
  EmbeddingRows layers = rows_of(2, 32, 1);
  layers.layer_rows = {layers.values};
  EXPECT_THAT(status(*engine, layers).message(), HasSubstr("1 layer_rows; the model adds rows after 0 layers"));
  EmbeddingRows placeholder = rows_of(2, 32, 1);
  placeholder.placeholder = 64;
  EXPECT_THAT(status(*engine, placeholder).message(), HasSubstr("token 64 is outside the vocabulary"));
  EmbeddingRows far = rows_of(2, 32, 1);
  far.positions = {0, 200};
  EXPECT_THAT(status(*engine, far).message(), HasSubstr("lead to 201; 128 is the largest: raise the context"));
}

// --- Positions by axis, and rows of inner layers ---

/// qwen2 with the sections of Qwen2-VL, or of Qwen3-VL.
Checkpoint sectioned(bool is_interleaved) {
  Checkpoint checkpoint = open_prompt_checkpoint("qwen2");
  const int64_t half =
      checkpoint.config["hidden_size"].get<int64_t>() / checkpoint.config["num_attention_heads"].get<int64_t>() / 2;
  const int64_t height = half / 3, width = half / 3;
  checkpoint.config["rope_scaling"] = {{"type", is_interleaved ? "default" : "mrope"},
                                       {"mrope_section", {half - height - width, height, width}},
                                       {"mrope_interleaved", is_interleaved}};
  return checkpoint;
}

std::unique_ptr<TextEngine> open_sectioned(bool is_interleaved, const TextEngineOptions& options) {
  auto engine = LlmEngine::make(sectioned(is_interleaved), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

Prompt image_prompt(int64_t hidden_size, int seed = 1) {
  Prompt prompt = {5, 9, 3};
  EXPECT_TRUE(prompt.append(image_of(2, 4, hidden_size, seed)).ok());
  prompt.append(std::vector<int32_t>{11, 8, 2});
  return prompt;
}

TEST(PositionsByAxis, EqualTheReferenceInFloat64) {
  for (const bool is_interleaved : {false, true}) {
    TextEngineOptions options = taking_embeddings();
    const auto engine = open_sectioned(is_interleaved, options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->info().position_axes, 3);
    const int64_t size = engine->info().hidden_size;
    const Prompt prompt = image_prompt(size);
    const std::vector<float> got = logits_of(*engine, prompt);
    for (const char* device : {"cpu", "emu"}) {
      options.use_interpreter = std::strcmp(device, "cpu") == 0;
      options.device = device;
      const auto other = open_sectioned(is_interleaved, options);
      ASSERT_TRUE(other);
      const std::vector<float> want = logits_of(*other, prompt);
      // Two layers of float32 sums of 32 to 48 numbers, each with an error of a few units of 6e-8.
      EXPECT_LE(difference(got.data(), want.data(), std::ssize(prompt), engine->info().vocab_size).all, 1e-5) << device;
    }
    options = taking_embeddings();
    options.max_batch_tokens = 1;
    const auto by_token = open_sectioned(is_interleaved, options);
    ASSERT_TRUE(by_token);
    EXPECT_EQ(logits_of(*by_token, prompt), got) << "cut at every token";
    // The positions of the patches matter.
    Prompt flat = {5, 9, 3};
    EmbeddingRows rows = image_of(2, 4, size, 1);
    rows.positions.clear();
    EXPECT_TRUE(flat.append(std::move(rows)).ok());
    flat.append(std::vector<int32_t>{11, 8, 2});
    const std::vector<float> other = logits_of(*engine, flat);
    EXPECT_GT(difference(other.data(), got.data(), std::ssize(prompt), engine->info().vocab_size).all, 1e-3);
  }
}

TEST(PositionsByAxis, TextAloneHasTheBitsOfOneAxis) {
  for (const bool is_interleaved : {false, true}) {
    TextEngineOptions options = taking_embeddings();
    const auto three = open_sectioned(is_interleaved, options);
    options.prompt_embeddings = false;
    const auto one = open_sectioned(is_interleaved, options);
    ASSERT_TRUE(three && one);
    EXPECT_EQ(one->info().position_axes, 1);
    EXPECT_EQ(logits_of(*three, kPromptTokens), logits_of(*one, kPromptTokens));
  }
}

TEST(PositionsByAxis, SequencesAndRequestsGoOnAfterAnImage) {
  const auto engine = open_sectioned(false, taking_embeddings());
  ASSERT_TRUE(engine);
  const Prompt prompt = image_prompt(engine->info().hidden_size);
  GenerateRequest request;
  request.prompt = prompt;
  request.max_tokens = 6;
  request.sampling.temperature = 0;
  request.ignore_stop_tokens = true;
  const auto generated = engine->generate(request), again = engine->generate(request);
  ASSERT_TRUE(generated.ok() && again.ok()) << generated.status().to_string();
  EXPECT_EQ(again->cached_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(again->tokens, generated->tokens);
  Prompt whole = prompt;
  whole.append(generated->tokens);
  const std::vector<float> all = logits_of(*engine, whole);
  const auto vocab = engine->info().vocab_size;
  for (size_t i = 0; i < generated->tokens.size(); ++i) {
    const float* row = all.data() + static_cast<int64_t>(prompt.size() + i - 1) * vocab;
    EXPECT_EQ(std::max_element(row, row + vocab) - row, generated->tokens[i]) << i;
  }
  // A fork is truncated within the image and appends the rest of the prompt.
  auto sequence = engine->new_sequence().value();
  ASSERT_TRUE(sequence->append(prompt, {}).ok());
  auto fork = sequence->fork().value();
  EXPECT_EQ(fork->truncate(6), 6);
  const PromptView view = whole;
  for (const auto& [part, begin] : {std::pair{sequence.get(), prompt.size()}, std::pair{fork.get(), size_t{6}}}) {
    const auto rest = part->forward(view.subview(begin, whole.size() - begin));
    ASSERT_TRUE(rest.ok()) << rest.status().to_string();
    EXPECT_TRUE(std::equal(rest->begin(), rest->end(), all.end() - vocab)) << begin;
  }
}

/// Runs one step of a prompt on a llama whose graph adds rows after its first layer. Returns the logits of all places,
/// then the hidden states after the first layer.
std::vector<float> step_with_layer_rows(const Prompt& prompt, bool interprets, std::vector<int64_t> layers) {
  const Checkpoint checkpoint = open_prompt_checkpoint("llama_gqa");
  auto config = read_decoder_config(checkpoint.config);
  EXPECT_TRUE(config.ok());
  config->layers_with_rows = std::move(layers);
  const DecoderOutputs outputs = {.hidden = {{.layers = 1}}, .takes_embeddings = true};
  auto model = build_llama_decoder("llama", *config, checkpoint, outputs, {});
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  StepModel step_model;
  step_model.graph = std::move(model->graph);
  step_model.vocab_size = config->vocab_size;
  step_model.context = config->max_positions;
  TextEngineOptions options = taking_embeddings();
  options.use_interpreter = interprets;
  options.max_sequences = 1;
  const auto device = choose_engine_device("cpu", interprets);
  const auto runtime = Runtime::open({.threads = 2});
  auto stepper = Stepper::make(std::move(step_model), options, *device, resources_of(**runtime));
  EXPECT_TRUE(stepper.ok()) << stepper.status().to_string();
  SequenceState state((*stepper)->pool());
  const int64_t rows = std::ssize(prompt);
  const StepEntry entry = {.state = &state, .tokens = prompt, .logit_rows = rows, .hidden_rows = rows};
  Status status = (*stepper)->check(entry);
  EXPECT_TRUE(status.ok()) << status.to_string();
  status = (*stepper)->step({&entry, 1});
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<float> out((*stepper)->logits(), (*stepper)->logits() + rows * config->vocab_size);
  out.insert(out.end(), (*stepper)->hidden(), (*stepper)->hidden() + rows * config->hidden_size);
  return out;
}

TEST(LayerRows, AreAddedToTheHiddenStatesOfTheirPlaces) {
  constexpr int64_t kHidden = 32, kVocab = 64;
  Prompt without = {5, 9}, with = {5, 9};
  EmbeddingRows rows = rows_of(3, kHidden, 1);
  EXPECT_TRUE(without.append(rows).ok());
  const EmbeddingRows added = rows_of(3, kHidden, 2);
  rows.layer_rows = {added.values};
  EXPECT_TRUE(with.append(rows).ok());
  without.append(std::vector<int32_t>{7, 8});
  with.append(std::vector<int32_t>{7, 8});
  const std::vector<float> plain = step_with_layer_rows(without, false, {0}),
                           got = step_with_layer_rows(with, false, {0}), want = step_with_layer_rows(with, true, {0});
  ASSERT_EQ(got.size(), static_cast<size_t>(7 * (kVocab + kHidden)));
  EXPECT_LE(difference(got.data(), want.data(), 1, std::ssize(got)).all, 1e-5);
  // The hidden states after the first layer differ by the rows and by nothing else.
  for (int64_t place = 0; place < 7; ++place)
    for (int64_t n = 0; n < kHidden; ++n) {
      const auto at = static_cast<size_t>(7 * kVocab + place * kHidden + n);
      const float more = place >= 2 && place < 5 ? added.values.get()[(place - 2) * kHidden + n] : 0.0f;
      EXPECT_EQ(got[at], plain[at] + more) << place << " " << n;
    }
  EXPECT_EQ(step_with_layer_rows(without, false, {}), plain) << "nothing is added where the prompt has no layer rows";
}

}  // namespace
}  // namespace redline::testing
