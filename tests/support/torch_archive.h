// Files as torch.save writes them for a dictionary of tensors: a zip archive of a pickle and one member per storage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::testing {

struct TorchArchiveTensor {
  std::string name;
  std::string storage;  ///< "FloatStorage"
  std::vector<int64_t> shape;
  std::string bytes;
};

/// The bytes of the file. `under`: the key of an outer dictionary that holds this one ("state_dict"), or "".
inline std::string torch_archive(const std::vector<TorchArchiveTensor>& tensors, const std::string& under = "") {
  const auto le = [](uint64_t value, int width) {
    std::string bytes;
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
    return bytes;
  };
  const auto text = [&](const std::string& s) { return "X" + le(s.size(), 4) + s; };
  const auto number = [&](int64_t n) { return "J" + le(static_cast<uint64_t>(n), 4); };
  const std::string ordered = "ccollections\nOrderedDict\n)R";
  struct Member {
    std::string name, data;
  };
  std::vector<Member> members = {{"archive/data.pkl", ""}};
  std::string items;
  for (const TorchArchiveTensor& t : tensors) {
    const std::string key = std::to_string(members.size() - 1);
    int64_t elements = 1;
    std::string sizes = "(", strides = ")";
    for (size_t axis = t.shape.size(); axis-- > 0;) {
      strides.insert(0, number(elements));
      elements *= t.shape[axis];
    }
    for (const int64_t size : t.shape) sizes += number(size);
    strides = "(" + strides.substr(0, strides.size() - 1) + "t";
    items += text(t.name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + t.storage + "\n" +
             text(key) + text("cpu") + number(elements) + "tQ" + number(0) + sizes + "t" + strides + "\x89" + ordered +
             "tR";
    members.push_back({"archive/data/" + key, t.bytes});
  }
  const std::string dictionary = ordered + "(" + items + "u";
  members[0].data = "\x80\x02" + (under.empty() ? dictionary : "}(" + text(under) + dictionary + "u") + ".";
  std::string file, directory;
  for (const Member& m : members) {
    const std::string common = le(0, 2) + le(0, 2) + le(0, 4) + le(0, 4) + le(m.data.size(), 4) + le(m.data.size(), 4);
    const uint64_t at = file.size();
    // PyTorch pads the extra field so that data begins at a multiple of 64.
    const uint64_t padding = (64 - (at + 30 + m.name.size()) % 64) % 64;
    file += "PK\x03\x04" + le(20, 2) + common + le(m.name.size(), 2) + le(padding, 2) + m.name +
            std::string(padding, 'Z') + m.data;
    directory += "PK\x01\x02" + le(20, 2) + le(20, 2) + common + le(m.name.size(), 2) + le(0, 2) + le(0, 2) + le(0, 2) +
                 le(0, 2) + le(0, 4) + le(at, 4) + m.name;
  }
  const uint64_t at = file.size();
  return file + directory + "PK\x05\x06" + le(0, 4) + le(members.size(), 2) + le(members.size(), 2) +
         le(directory.size(), 4) + le(at, 4) + le(0, 2);
}

}  // namespace redline::testing
