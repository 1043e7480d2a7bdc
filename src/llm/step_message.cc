#include "llm/step_message.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/mapped_file.h"

namespace redline {
namespace {

constexpr std::string_view kStepsMagic = "redline steps 1\n";

// Numbers are stored as they are in memory.
static_assert(std::endian::native == std::endian::little, "messages are little-endian");

/// Appends numbers to bytes. A list is its size as 64 bits, then its elements.
class Writer {
 public:
  template <class T>
  void value(const T& v) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof(v));
  }
  template <class T>
  void list(const std::vector<T>& values) {
    static_assert(std::is_arithmetic_v<T>);
    value(static_cast<uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  template <class T, class Body>
  void list(const std::vector<T>& values, const Body& body) {
    value(static_cast<uint64_t>(values.size()));
    for (const T& each : values) body(each);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads numbers from bytes. After the first number that is not there, all further ones are 0 and lists are empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T value() {
    T v{};
    if (!has(sizeof(T))) return v;
    std::memcpy(&v, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return v;
  }
  template <class T>
  void value(T& v) {
    v = value<T>();
  }
  template <class T>
  void list(std::vector<T>& values) {
    values.resize(count(sizeof(T)));
    if (values.empty()) return;
    std::memcpy(values.data(), bytes_.data() + at_, values.size() * sizeof(T));
    at_ += values.size() * sizeof(T);
  }
  /// `min_bytes`: the fewest bytes of an element, so that a wrong count cannot ask for much memory.
  template <class T, class Body>
  void list(std::vector<T>& values, size_t min_bytes, const Body& body) {
    values.resize(count(min_bytes));
    for (T& each : values) body(each);
  }
  size_t at() const { return at_; }
  bool is_cut_off() const { return is_cut_off_; }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  bool has(size_t bytes) {
    if (bytes_.size() - at_ < bytes) is_cut_off_ = true;
    return !is_cut_off_;
  }
  size_t count(size_t min_bytes) {
    const auto count = value<uint64_t>();
    if (count > (bytes_.size() - at_) / min_bytes) is_cut_off_ = true;
    return is_cut_off_ ? 0 : static_cast<size_t>(count);
  }
  std::string_view bytes_;
  size_t at_ = 0;
  bool is_cut_off_ = false;
};

}  // namespace

void StepMessage::clear() {
  page_changes.clear();
  sequences.clear();
  tokens.clear();
  positions.clear();
  lengths.clear();
  logit_rows.clear();
  hidden_rows.clear();
  embedding_rows.clear();
  embeddings.clear();
  for (std::vector<float>& rows : layer_rows) rows.clear();
  for (PageTables& group : groups) group.pages.clear(), group.begin.clear();
  adapters.clear();
  samples.clear();
}

Result<std::string> StepMessage::to_bytes() const {
  Writer w;
  w.list(page_changes, [&](const PageChange& c) { w.value(c.group), w.value(c.page), w.value(c.copy_of); });
  w.list(sequences, [&](const SequenceRows& s) { w.value(s.row_begin), w.value(s.rows), w.value(s.first_position); });
  for (const std::vector<int32_t>* list : {&tokens, &positions, &lengths, &logit_rows, &hidden_rows, &embedding_rows})
    w.list(*list);
  w.list(embeddings);
  w.list(layer_rows, [&](const std::vector<float>& rows) { w.list(rows); });
  w.list(groups, [&](const PageTables& group) { w.list(group.pages), w.list(group.begin); });
  Status status;
  w.list(adapters, [&](const Adapters& segment) {
    w.value(static_cast<uint8_t>(segment.unit));
    w.value(segment.row_begin), w.value(segment.row_end);
    w.list(segment.adapters, [&](const WeightedAdapter& a) {
      if (a.adapter->identity == 0 && status.ok())
        status = unsupported("a step with an adapter of unknown content cannot be written: its identity is 0");
      w.value(a.adapter->identity), w.value(a.weight);
    });
  });
  w.list(samples, [&](const SampleRow& s) {
    w.value(static_cast<uint8_t>(s.kind));
    w.list(s.edits,
           [&](const LogitEdit& e) { w.value(e.token), w.value(e.bias), w.value(e.repetition), w.value(e.penalty); });
    w.value(s.scale), w.value(s.top_k), w.value(s.top_p), w.value(s.min_p), w.value(s.u);
  });
  REDLINE_TRY(status);
  return w.take();
}

Result<StepMessage> StepMessage::from_bytes(std::string_view bytes, const FindAdapter& find_adapter) {
  StepMessage m;
  Reader r(bytes);
  r.list(m.page_changes, 12, [&](PageChange& c) { r.value(c.group), r.value(c.page), r.value(c.copy_of); });
  r.list(m.sequences, 16, [&](SequenceRows& s) { r.value(s.row_begin), r.value(s.rows), r.value(s.first_position); });
  for (std::vector<int32_t>* list :
       {&m.tokens, &m.positions, &m.lengths, &m.logit_rows, &m.hidden_rows, &m.embedding_rows})
    r.list(*list);
  r.list(m.embeddings);
  r.list(m.layer_rows, 8, [&](std::vector<float>& rows) { r.list(rows); });
  r.list(m.groups, 16, [&](PageTables& group) { r.list(group.pages), r.list(group.begin); });
  Status status;
  r.list(m.adapters, 25, [&](Adapters& segment) {
    const auto unit = r.value<uint8_t>();
    if (unit >= kNumSymbols && status.ok()) status = invalid_argument("a step: rows of adapters count unit {}", unit);
    segment.unit = static_cast<Symbol>(unit);
    r.value(segment.row_begin), r.value(segment.row_end);
    r.list(segment.adapters, 12, [&](WeightedAdapter& a) {
      const auto identity = r.value<uint64_t>();
      r.value(a.weight);
      if (find_adapter) a.adapter = find_adapter(identity);
      if (!a.adapter && status.ok())
        status = not_found("a step uses the adapter {:016x}, which is not loaded here", identity);
    });
  });
  r.list(m.samples, 37, [&](SampleRow& s) {
    const auto kind = r.value<uint8_t>();
    if (kind > static_cast<uint8_t>(SampleRow::Kind::kDraw) && status.ok())
      status = invalid_argument("a step: a row is sampled in way {}", kind);
    s.kind = static_cast<SampleRow::Kind>(kind);
    r.list(s.edits, 16,
           [&](LogitEdit& e) { r.value(e.token), r.value(e.bias), r.value(e.repetition), r.value(e.penalty); });
    r.value(s.scale), r.value(s.top_k), r.value(s.top_p), r.value(s.min_p), r.value(s.u);
  });
  if (r.is_cut_off()) return invalid_argument("a step of {} bytes is cut off at byte {}", bytes.size(), r.at());
  if (!r.is_at_end()) return invalid_argument("a step of {} bytes ends at byte {}", bytes.size(), r.at());
  REDLINE_TRY(status);
  return m;
}

Status StepRecorder::failed() const { return io("{}: cannot be written: {}", path_, std::strerror(errno)); }

Result<StepRecorder> StepRecorder::create(const std::string& path) {
  StepRecorder recorder(path);
  recorder.file_ << kStepsMagic;
  if (!recorder.file_) return recorder.failed();
  return recorder;
}

Status StepRecorder::write(const StepMessage& step) {
  REDLINE_ASSIGN(const std::string bytes, step.to_bytes());
  const uint64_t size = bytes.size();
  file_.write(reinterpret_cast<const char*>(&size), sizeof(size)).write(bytes.data(), std::ssize(bytes));
  return file_ ? Status() : failed();
}

Status StepRecorder::close() {
  file_.close();
  return file_ ? Status() : failed();
}

Result<std::vector<StepMessage>> read_steps(const std::string& path, const StepMessage::FindAdapter& find_adapter) {
  REDLINE_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  std::string_view rest = file->text();
  if (!rest.starts_with(kStepsMagic)) return invalid_argument("{}: not a file of recorded steps", path);
  rest.remove_prefix(kStepsMagic.size());
  std::vector<StepMessage> steps;
  while (!rest.empty()) {
    uint64_t size = 0;
    if (rest.size() >= sizeof(size)) std::memcpy(&size, rest.data(), sizeof(size));
    if (rest.size() < sizeof(size) || size > rest.size() - sizeof(size))
      return invalid_argument("{}: step {} is cut off at byte {}", path, steps.size(), file->size());
    Result<StepMessage> step = StepMessage::from_bytes(rest.substr(sizeof(size), size), find_adapter);
    if (!step.ok()) return step.status().within(fmt::format("{}: step {}", path, steps.size()));
    steps.push_back(std::move(step).value());
    rest.remove_prefix(sizeof(size) + size);
  }
  return steps;
}

}  // namespace redline
