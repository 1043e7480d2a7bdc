#include "embedding/embedding_engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <numeric>
#include <utility>

#include "embedding/pooling.h"
#include "models/checkpoint/precision.h"
#include "models/checkpoint/weight_examiner.h"
#include "models/registry.h"
#include "text/unicode.h"

namespace redline {
namespace {

constexpr int64_t kUsualBatchTokens = 2048, kMaxBatchTokens = int64_t{1} << 20;

void describe_weights(const Graph& graph, EmbeddingInfo& info) {
  std::map<DType, int64_t> types;
  for (const ValueInfo& value : graph.values)
    if (value.kind == ValueKind::kWeight) {
      ++types[value.dtype];
      info.parameters += value.weight.view.num_elements();
      info.weight_bytes += value.weight.view.bytes();
    }
  for (const auto& [dtype, count] : types)
    info.weight_types += fmt::format("{}{} x{}", info.weight_types.empty() ? "" : ", ", dtype_info(dtype).name, count);
}

Status too_long(int64_t tokens, int64_t most) {
  return invalid_argument("{} tokens are more than the model's {}; shorten the text, or enable truncation", tokens,
                          most);
}

/// Returns true for the weights that are quantized, which are the matrices of the layers. Tables of embeddings are
/// looked up, not multiplied. Matrices that compute scores from one vector or choose experts are small and sensitive.
/// Matrices of joint projections that a model takes apart (GPT-2's are stored transposed) stay as they are too.
bool is_quantized_weight(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  for (const char* part :
       {".gate.", "expert_gate", "router", ".c_attn", ".c_proj", ".c_fc", "query_key_value", "kv_b_proj"})
    if (has(part)) return false;
  return (has("layer.") || has("layers.") || has(".h.") || name.starts_with("h.")) && name.ends_with(".weight");
}

/// Returns ok, or an error that explains why the values of a text are not finite.
Status check_finite(std::span<const float> values, const std::string& path) {
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return {};
  return explain_not_finite(
      internal("the embedding of a text is not finite; the weights or the computation are broken"), path);
}

float sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); }

}  // namespace

Result<std::unique_ptr<EmbeddingEngine>> TextEmbeddingEngine::make(Checkpoint checkpoint, EmbeddingOptions options) {
  std::unique_ptr<TextEmbeddingEngine> engine(new TextEmbeddingEngine());
  REDLINE_TRY(engine->choose_machine(options));
  options.dtype = resolve_precision(options.dtype, resources_of(*engine->runtime_).kernels(), engine->device_);
  REDLINE_TRY(convert_matrices(checkpoint, options.dtype, is_quantized_weight));
  const EncoderFamily* family = find_encoder_family(checkpoint);
  const Status opened =
      family ? engine->open_encoder(*family, checkpoint, options) : engine->open_decoder(checkpoint, options);
  if (!opened.ok()) return opened.message().starts_with(checkpoint.path) ? opened : opened.within(checkpoint.path);
  return std::unique_ptr<EmbeddingEngine>(std::move(engine));
}

Status TextEmbeddingEngine::open_encoder(const EncoderFamily& family, Checkpoint& checkpoint,
                                         EmbeddingOptions& options) {
  REDLINE_ASSIGN(EncoderModel model, family.build(checkpoint));
  is_encoder_ = true;
  info_.num_layers = model.num_layers;
  info_.hidden_size = model.width;
  info_.num_heads = model.num_heads;
  info_.vocab_size = model.vocab_size;
  info_.num_labels = model.num_labels;
  has_second_type_ = model.num_token_types > 1;
  REDLINE_TRY(set_up(checkpoint, model.graph, model.max_tokens, options));
  info_.pooling = options.pooling ? *options.pooling : config_.pooling.value_or(Pooling::kMean);
  options.max_batch_tokens = std::max(options.max_batch_tokens, info_.max_length);
  REDLINE_ASSIGN(network_, make_encoder_network(model, options, device_, resources_of(*runtime_)));
  if (!model.head) return {};
  head_means_ = model.head_means;
  head_rows_ = network_->limits().sequences;
  REDLINE_ASSIGN(head_, make_head(std::move(*model.head), head_rows_, options, device_, resources_of(*runtime_)));
  return {};
}

Status TextEmbeddingEngine::open_decoder(Checkpoint& checkpoint, EmbeddingOptions& options) {
  REDLINE_ASSIGN(reranker_, take_causal_reranker(checkpoint));
  const DecoderOutputs outputs = {.logits = false, .hidden = {{.is_normed = true}}};
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint, outputs));
  info_.num_layers = model.config.num_layers;
  info_.hidden_size = model.config.hidden_size;
  info_.num_heads = model.config.num_heads;
  info_.vocab_size = model.config.vocab_size;
  REDLINE_TRY(set_up(checkpoint, model.graph, model.config.max_positions, options));
  info_.pooling = options.pooling ? *options.pooling : config_.pooling.value_or(Pooling::kLast);
  options.max_length = info_.max_length;
  REDLINE_ASSIGN(network_, make_decoder_network(model, options, device_, resources_of(*runtime_)));
  info_.cache_bytes = network_->cache_bytes();
  is_plain_decoder_ = !config_.is_sentence_transformer && !config_.pooling && !options.pooling;
  if (!reranker_) return {};
  info_.num_labels = 1;
  head_rows_ = network_->limits().sequences;
  REDLINE_ASSIGN(head_, make_head(std::move(reranker_->head), head_rows_, options, device_, resources_of(*runtime_)));
  return {};
}

Status TextEmbeddingEngine::set_up(Checkpoint& checkpoint, const Graph& graph, int64_t max_tokens,
                                   EmbeddingOptions& options) {
  REDLINE_ASSIGN(config_, read_embedding_config(checkpoint));
  if (!checkpoint.tokenizer)
    return checkpoint.tokenizer_status.ok() ? not_found("no tokenizer") : checkpoint.tokenizer_status;
  tokenizer_ = std::move(checkpoint.tokenizer);
  info_.path = checkpoint.path;
  info_.architecture = graph.name;
  info_.file_format = checkpoint.format;
  describe_weights(graph, info_);
  info_.dimensions = info_.hidden_size;
  info_.normalizes = config_.normalizes;
  info_.prompts = config_.prompts;
  info_.default_prompt = config_.default_prompt;
  int64_t longest = max_tokens;
  for (const int64_t limit : {config_.max_length, tokenizer_->max_tokens()})
    if (limit > 0) longest = std::min(longest, limit);
  // A model's files may name any length. The limit is the number of tokens that one step can hold.
  const int64_t most = std::min(max_tokens, kMaxBatchTokens);
  if (options.max_length < 0 || options.max_length > most)
    return invalid_argument("max_length {} is outside [1, {}]", options.max_length, most);
  info_.max_length = options.max_length > 0 ? options.max_length : std::min(longest, most);
  if (options.max_batch_tokens < 0 || options.max_batch_tokens > kMaxBatchTokens)
    return invalid_argument("max_batch_tokens {} is outside [1, {}]", options.max_batch_tokens, kMaxBatchTokens);
  if (options.max_batch_tokens == 0) options.max_batch_tokens = kUsualBatchTokens;
  return {};
}

int64_t TextEmbeddingEngine::rows_read(bool all) const {
  return all || is_encoder_ || info_.pooling != Pooling::kLast ? 0 : 1;
}

Status TextEmbeddingEngine::choose_machine(const EmbeddingOptions& options) {
  REDLINE_ASSIGN(device_, choose_engine_device(options.device, options.use_interpreter));
  const bool runs_alone = options.use_interpreter && !options.runtime;
  REDLINE_ASSIGN(runtime_, choose_runtime(options.runtime, {runs_alone ? 1 : options.threads, options.trace_file}));
  info_.threads = options.use_interpreter ? 1 : runtime_->threads();
  info_.isa = options.use_interpreter            ? "interpreter"
              : device_.kind != DeviceKind::kCpu ? device_name(device_)
                                                 : runtime_->isa();
  return {};
}

Result<std::string> TextEmbeddingEngine::prompt_of(const std::optional<std::string>& name) const {
  const std::string wanted = name.value_or(config_.default_prompt);
  if (wanted.empty()) return std::string();
  std::string known;
  for (const auto& [prompt, text] : config_.prompts) {
    if (prompt == wanted) return text;
    known += (known.empty() ? "" : ", ") + prompt;
  }
  if (known.empty()) return invalid_argument("prompt \"{}\": the model has no prompts", wanted);
  return invalid_argument("prompt \"{}\": the model has {}", wanted, known);
}

std::vector<int32_t> TextEmbeddingEngine::encode_plain(std::string_view text) const {
  return tokenizer_->encode(config_.lowercase ? lowercase_unicode(text) : std::string(text), {.add_special = false});
}

Result<std::vector<int32_t>> TextEmbeddingEngine::encode_within(std::string_view text, int64_t around,
                                                                const TextLimits& limits, int64_t& truncated) const {
  const bool cuts = limits.truncate && around < info_.max_length;
  // Tokens of a text that is too long are counted up to a multiple of the limit, for the message.
  constexpr int64_t kCountedLengths = 4;
  const int64_t most = cuts ? info_.max_length - around : kCountedLengths * info_.max_length;
  const auto too_many = [&](int64_t at_least) {
    return invalid_argument(
        "a text of {} bytes has at least {} tokens, which are more than the model's {}; shorten the text, or enable "
        "truncation",
        text.size(), at_least, info_.max_length);
  };
  const int64_t longest = tokenizer_->max_token_bytes();
  if (!cuts && longest > 0 && std::ssize(text) / longest > most) return too_many(std::ssize(text) / longest);
  EncodeWork work(most, [&](int64_t) { return !limits.goes_on || limits.goes_on(); });
  std::vector<int32_t> ids;
  tokenizer_->encode(config_.lowercase ? lowercase_unicode(text) : std::string(text), {.add_special = false}, work,
                     ids);
  if (work.is_cancelled()) return cancelled("the caller has cancelled the request");
  if (std::ssize(ids) > most && !cuts) return too_many(most + 1);
  if (std::ssize(ids) + around > info_.max_length) {
    if (!cuts) return too_long(std::ssize(ids) + around, info_.max_length);
    ids.resize(static_cast<size_t>(most));
    ++truncated;
  }
  return ids;
}

Result<TextEmbeddingEngine::Encoded> TextEmbeddingEngine::encode_text(const std::string& prompt, std::string_view text,
                                                                      const TextLimits& limits,
                                                                      int64_t& truncated) const {
  const std::vector<int32_t>&prefix = tokenizer_->prefix(), &suffix = tokenizer_->suffix();
  const int64_t around = std::ssize(prefix) + std::ssize(suffix);
  REDLINE_ASSIGN(const std::vector<int32_t> plain,
                 encode_within(prompt + std::string(text), around, limits, truncated));
  Encoded encoded;
  encoded.ids = prefix;
  encoded.ids.insert(encoded.ids.end(), plain.begin(), plain.end());
  encoded.ids.insert(encoded.ids.end(), suffix.begin(), suffix.end());
  if (encoded.ids.empty()) return invalid_argument("the text has no tokens");
  if (!config_.include_prompt && !prompt.empty())
    encoded.skip = std::min(std::ssize(prefix) + std::ssize(encode_plain(prompt)), std::ssize(encoded.ids) - 1);
  return encoded;
}

Result<std::vector<int32_t>> TextEmbeddingEngine::encode(std::string_view text,
                                                         const std::optional<std::string>& prompt_name) const {
  REDLINE_ASSIGN(const std::string prompt, prompt_of(prompt_name));
  std::vector<int32_t> ids = tokenizer_->prefix();
  const std::vector<int32_t> plain = encode_plain(prompt + std::string(text));
  ids.insert(ids.end(), plain.begin(), plain.end());
  ids.insert(ids.end(), tokenizer_->suffix().begin(), tokenizer_->suffix().end());
  return ids;
}

Status TextEmbeddingEngine::check_ids(std::span<const int32_t> ids) const {
  if (ids.empty()) return invalid_argument("no tokens");
  for (const int32_t id : ids)
    if (id < 0 || id >= info_.vocab_size)
      return invalid_argument("token {} is outside the vocabulary of {}", id, info_.vocab_size);
  return {};
}

Status TextEmbeddingEngine::run(std::span<const Encoded> texts, const std::function<bool()>& goes_on,
                                const TextNetwork::Take& take) {
  const TextNetwork::Limits limits = network_->limits();
  std::vector<TokenSequence> batch;
  for (size_t first = 0; first < texts.size(); first += batch.size()) {
    if (goes_on && !goes_on()) return cancelled("the caller has cancelled the request");
    batch.clear();
    int64_t tokens = 0;
    for (size_t i = first; i < texts.size() && std::ssize(batch) < limits.sequences; ++i) {
      tokens += std::ssize(texts[i].ids);
      if (tokens > limits.tokens) break;
      batch.push_back({texts[i].ids, texts[i].second, rows_read(false)});
    }
    REDLINE_CHECK(!batch.empty());
    REDLINE_TRY(
        network_->run(batch, [&](size_t i, const float* hidden, int64_t rows) { take(first + i, hidden, rows); }));
  }
  return {};
}

Result<TextEmbeddingEngine::Encoding> TextEmbeddingEngine::encode_request(const EmbedRequest& request) const {
  if (!request.texts.empty() && !request.tokens.empty()) return invalid_argument("give texts or tokens, not both");
  if (request.dimensions < 0 || request.dimensions > info_.dimensions)
    return invalid_argument("{} dimensions are requested, the model has {}", request.dimensions, info_.dimensions);
  REDLINE_ASSIGN(const std::string prompt, prompt_of(request.prompt_name));
  Encoding encoding;
  Embeddings& result = encoding.result;
  const bool has_tokens = !request.tokens.empty();
  result.count = encoding.left = std::ssize(request.texts) + std::ssize(request.tokens);
  result.dimensions = request.dimensions > 0 ? request.dimensions : info_.dimensions;
  result.values.resize(static_cast<size_t>(result.count * result.dimensions));
  if (request.keep_token_states) result.token_states.resize(static_cast<size_t>(result.count));
  encoding.texts.reserve(static_cast<size_t>(result.count));
  for (int64_t i = 0; i < result.count; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string place = fmt::format("text {}", i);
    if (has_tokens) {
      Encoded encoded;
      encoded.ids = request.tokens[at];
      if (std::ssize(encoded.ids) > info_.max_length) {
        if (!request.truncate) return too_long(std::ssize(encoded.ids), info_.max_length).within(place);
        encoded.ids.resize(static_cast<size_t>(info_.max_length));
        ++result.truncated;
      }
      encoding.texts.push_back(std::move(encoded));
    } else {
      auto encoded = encode_text(prompt, request.texts[at], {request.truncate, request.goes_on}, result.truncated);
      if (!encoded.ok()) return std::move(encoded).status().within(place);
      encoding.texts.push_back(std::move(encoded).value());
    }
    REDLINE_TRY(check_ids(encoding.texts.back().ids).within(place));
    result.tokens.push_back(std::ssize(encoding.texts.back().ids));
  }
  return encoding;
}

Result<Embeddings> TextEmbeddingEngine::embed(const EmbedRequest& request) {
  Result<Embeddings> result = internal("no result");
  embed_all({&request, 1}, [&](size_t, Result<Embeddings> done) { result = std::move(done); });
  return result;
}

void TextEmbeddingEngine::embed_all(std::span<const EmbedRequest> requests,
                                    const std::function<void(size_t, Result<Embeddings>)>& done) {
  struct Text {
    size_t request, index;
  };
  std::vector<std::unique_ptr<Encoding>> encodings(requests.size());  // encodings of the requests without an error
  std::vector<Text> texts;
  for (size_t r = 0; r < requests.size(); ++r) {
    Result<Encoding> encoding = encode_request(requests[r]);
    if (!encoding.ok() || encoding->left == 0) {
      done(r, encoding.ok() ? Result<Embeddings>(std::move(encoding->result))
                            : Result<Embeddings>(std::move(encoding).status()));
      continue;
    }
    for (size_t i = 0; i < encoding->texts.size(); ++i) texts.push_back({r, i});
    encodings[r] = std::make_unique<Encoding>(std::move(encoding).value());
  }
  const auto end = [&](size_t r, Result<Embeddings> result) {
    encodings[r].reset();
    done(r, std::move(result));
  };
  std::vector<float> whole(static_cast<size_t>(info_.dimensions));
  const std::lock_guard lock(mutex_);
  const TextNetwork::Limits limits = network_->limits();
  std::vector<TokenSequence> batch;
  std::vector<Text> members;
  for (size_t next = 0; next < texts.size();) {
    for (size_t r = 0; r < requests.size(); ++r)
      if (encodings[r] && requests[r].goes_on && !requests[r].goes_on())
        end(r, cancelled("the caller has cancelled the request"));
    batch.clear();
    members.clear();
    for (int64_t tokens = 0; next < texts.size() && std::ssize(batch) < limits.sequences; ++next) {
      const Text text = texts[next];
      if (!encodings[text.request]) continue;
      const Encoded& encoded = encodings[text.request]->texts[text.index];
      tokens += std::ssize(encoded.ids);
      if (tokens > limits.tokens) break;
      batch.push_back({encoded.ids, encoded.second, rows_read(requests[text.request].keep_token_states)});
      members.push_back(text);
    }
    if (batch.empty()) return;  // all texts that are left have ended
    std::vector<Status> broken(batch.size());
    std::vector<Pooler> poolers(batch.size(), Pooler(info_.pooling, info_.hidden_size));
    std::vector<int64_t> to_skip;  // rows of the prompt, which pooling ignores
    for (size_t i = 0; i < batch.size(); ++i)
      to_skip.push_back(batch[i].rows > 0 ? 0 : encodings[members[i].request]->texts[members[i].index].skip);
    const Status status = network_->run(batch, [&](size_t i, const float* hidden, int64_t rows) {
      if (requests[members[i].request].keep_token_states) {
        std::vector<float>& states = encodings[members[i].request]->result.token_states[members[i].index];
        states.insert(states.end(), hidden, hidden + rows * info_.hidden_size);
      }
      const int64_t skip = std::min(to_skip[i], rows);
      to_skip[i] -= skip;
      poolers[i].add(hidden + skip * info_.hidden_size, rows - skip);
    });
    for (size_t i = 0; status.ok() && i < batch.size(); ++i) {
      const EmbedRequest& request = requests[members[i].request];
      Encoding& encoding = *encodings[members[i].request];
      poolers[i].finish(whole);
      broken[i] = check_finite(whole, info_.path);
      const auto kept = static_cast<size_t>(encoding.result.dimensions);
      const std::span<float> part = std::span(whole).first(kept);
      if (request.normalize.value_or(info_.normalizes)) normalize(part);
      std::copy(part.begin(), part.end(),
                encoding.result.values.begin() + static_cast<int64_t>(members[i].index * kept));
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const Text& text = members[i];
      Encoding* encoding = encodings[text.request].get();
      if (!encoding) continue;
      if (!status.ok()) end(text.request, status);
      else if (!broken[i].ok()) end(text.request, std::move(broken[i]).within(fmt::format("text {}", text.index)));
      else if (--encoding->left == 0) end(text.request, Result<Embeddings>(std::move(encoding->result)));
    }
  }
}

Result<Ranking> TextEmbeddingEngine::rank(const RankRequest& request) {
  if (reranker_) return rank_by_causal_reranker(request);
  if (is_plain_decoder_)
    return unsupported(
        "{}: a language model that is neither a reranker nor, by its files, an embedding model (modules.json of "
        "sentence-transformers, GGUF's pooling_type): the cosine of its hidden states would not rank documents",
        info_.path);
  return head_.empty() ? rank_by_cosine(request) : rank_by_classifier(request);
}

Result<Ranking> TextEmbeddingEngine::rank_by_cosine(const RankRequest& request) {
  const auto has_prompt = [&](std::string_view name) {
    return std::any_of(config_.prompts.begin(), config_.prompts.end(), [&](const auto& p) { return p.first == name; });
  };
  EmbedRequest query, documents;
  query.texts = {request.query};
  documents.texts = request.documents;
  query.truncate = documents.truncate = request.truncate;
  query.goes_on = documents.goes_on = request.goes_on;
  if (has_prompt("query")) query.prompt_name = "query";
  for (const char* name : {"document", "passage"})
    if (has_prompt(name)) documents.prompt_name = name;
  auto a = embed(query);
  if (!a.ok()) return std::move(a).status().within("query");
  REDLINE_ASSIGN(const Embeddings b, embed(documents));
  Ranking ranking;
  ranking.tokens = std::accumulate(b.tokens.begin(), b.tokens.end(), a->tokens[0]);
  ranking.truncated = a->truncated + b.truncated;
  const auto width = static_cast<size_t>(b.dimensions);
  for (size_t i = 0; i < request.documents.size(); ++i)
    ranking.scores.push_back(static_cast<float>(cosine(a->values, std::span(b.values).subspan(i * width, width))));
  return ranking;
}

Result<Ranking> TextEmbeddingEngine::rank_by_classifier(const RankRequest& request) {
  if (info_.num_labels != 1)
    return invalid_argument("{}: a classifier with {} labels; documents are ranked by a model with one", info_.path,
                            info_.num_labels);
  const PairTemplate& pair = tokenizer_->pair();
  const int64_t special = std::ssize(pair.prefix) + std::ssize(pair.middle) + std::ssize(pair.suffix);
  Ranking ranking;
  auto encoded_query = encode_within(request.query, special, {false, request.goes_on}, ranking.truncated);
  if (!encoded_query.ok()) return std::move(encoded_query).status().within("query and document 0");
  const std::vector<int32_t> query = std::move(encoded_query).value();
  const int64_t around = special + std::ssize(query);
  std::vector<Encoded> texts;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    auto document = encode_within(request.documents[i], around, {request.truncate, request.goes_on}, ranking.truncated);
    if (!document.ok()) return std::move(document).status().within(fmt::format("query and document {}", i));
    Encoded text;
    for (const auto* part : {&pair.prefix, &query, &pair.middle})
      text.ids.insert(text.ids.end(), part->begin(), part->end());
    if (pair.marks_second && has_second_type_) text.second = std::ssize(text.ids);
    for (const auto* part : {&std::as_const(document.value()), &pair.suffix})
      text.ids.insert(text.ids.end(), part->begin(), part->end());
    REDLINE_TRY(check_ids(text.ids).within(fmt::format("query and document {}", i)));
    ranking.tokens += std::ssize(text.ids);
    texts.push_back(std::move(text));
  }
  const auto width = static_cast<size_t>(info_.hidden_size);
  std::vector<float> pooled(texts.size() * width);
  const std::lock_guard lock(mutex_);
  REDLINE_TRY(run(texts, request.goes_on, [&](size_t i, const float* hidden, int64_t rows) {
    pool(head_means_ ? Pooling::kMean : Pooling::kCls, hidden, rows, std::span(pooled).subspan(i * width, width));
  }));
  REDLINE_TRY(run_head(pooled, [&](const float* scores) { ranking.scores.push_back(sigmoid(scores[0])); }));
  return ranking;
}

Status TextEmbeddingEngine::run_head(std::span<const float> pooled,
                                     const std::function<void(const float* scores)>& add) {
  const auto width = static_cast<size_t>(info_.hidden_size), texts = pooled.size() / width;
  const int64_t num_scores = reranker_ ? reranker_->num_scores : info_.num_labels;
  for (size_t first = 0; first < texts; first += static_cast<size_t>(head_rows_)) {
    const size_t count = std::min(texts - first, static_cast<size_t>(head_rows_));
    std::copy_n(pooled.begin() + static_cast<int64_t>(first * width), count * width, head_.input("pooled"));
    SymbolValues sizes;
    sizes[Symbol::kSequences] = static_cast<int64_t>(count);
    REDLINE_TRY(head_.run(sizes));
    REDLINE_TRY(check_finite({head_.output("scores"), count * static_cast<size_t>(num_scores)}, info_.path));
    for (size_t i = 0; i < count; ++i) add(head_.output("scores") + static_cast<int64_t>(i) * num_scores);
  }
  return {};
}

Result<Ranking> TextEmbeddingEngine::rank_by_causal_reranker(const RankRequest& request) {
  const int64_t around = std::ssize(reranker_->prefix) + std::ssize(reranker_->suffix);
  Ranking ranking;
  std::vector<Encoded> texts;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    auto inner = encode_within(CausalReranker::text_of(request.query, request.documents[i]), around,
                               {request.truncate, request.goes_on}, ranking.truncated);
    if (!inner.ok()) return std::move(inner).status().within(fmt::format("query and document {}", i));
    Encoded text;
    for (const auto* part :
         {&std::as_const(reranker_->prefix), &std::as_const(inner.value()), &std::as_const(reranker_->suffix)})
      text.ids.insert(text.ids.end(), part->begin(), part->end());
    REDLINE_TRY(check_ids(text.ids).within(fmt::format("query and document {}", i)));
    ranking.tokens += std::ssize(text.ids);
    texts.push_back(std::move(text));
  }
  const auto width = static_cast<size_t>(info_.hidden_size);
  std::vector<float> pooled(texts.size() * width);
  const std::lock_guard lock(mutex_);
  REDLINE_TRY(run(texts, request.goes_on, [&](size_t i, const float* hidden, int64_t rows) {
    const float* last = hidden + (rows - 1) * info_.hidden_size;
    std::copy_n(last, width, pooled.begin() + static_cast<int64_t>(i * width));
  }));
  REDLINE_TRY(run_head(pooled, [&](const float* scores) {
    ranking.scores.push_back(sigmoid(reranker_->num_scores == 1 ? scores[0] : scores[0] - scores[1]));
  }));
  return ranking;
}

Result<std::unique_ptr<EmbeddingEngine>> EmbeddingEngine::open(const std::string& path,
                                                               const EmbeddingOptions& options) {
  try {
    return open_on_device(options.device, [&](const std::string& device) -> Result<std::unique_ptr<EmbeddingEngine>> {
      EmbeddingOptions on_device = options;
      on_device.device = device;
      REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
      return TextEmbeddingEngine::make(std::move(checkpoint), on_device);
    });
  } catch (const std::bad_alloc&) {
    return out_of_memory("{}: not enough memory to open the model", path);
  }
}

}  // namespace redline
