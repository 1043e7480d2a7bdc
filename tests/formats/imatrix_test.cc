#include "formats/imatrix.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "formats/gguf_writer.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Imatrix : public ::testing::Test {
 protected:
  std::string path() const { return temporary_.path() + "/imatrix"; }
  void put(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  void fails(const char* message) const {
    const auto read = ImportanceMatrix::read(path());
    EXPECT_EQ(read.status().code(), Code::invalid_argument) << read.status().to_string();
    EXPECT_THAT(read.status().message(), HasSubstr(message));
  }
  testing::TemporaryFolder temporary_;
};

template <class T>
std::string imatrix_bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string imatrix_number(int32_t value) { return imatrix_bytes_of(std::vector<int32_t>{value}); }

TEST_F(Imatrix, GgufIsReadAsItWasWritten) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_q.weight"] = {{2, 4, 9}, {2}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = {{3, 6, 0, 0}, {3, 0}};
  matrix.datasets = {"text.txt"};
  matrix.chunks = 7;
  matrix.chunk_size = 512;
  ASSERT_TRUE(matrix.write(path()).ok());
  const auto read = ImportanceMatrix::read(path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->datasets, matrix.datasets);
  EXPECT_EQ(read->chunks, 7);
  EXPECT_EQ(read->chunk_size, 512);
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_THAT(read->entries.at("blk.0.attn_q.weight").means(), ElementsAre(1, 2, 4.5f));
  // An expert that has seen nothing counts like any other.
  EXPECT_THAT(read->entries.at("blk.0.ffn_up_exps.weight").means(), ElementsAre(1, 2, 1, 1));
}

TEST_F(Imatrix, TheOlderFormat) {
  const std::string name = "blk.0.attn_q.weight";
  const std::string entry = imatrix_number(static_cast<int32_t>(name.size())) + name + imatrix_number(4) +
                            imatrix_number(3) + imatrix_bytes_of(std::vector<float>{4, 8, 2});
  put(imatrix_number(1) + entry);
  auto read = ImportanceMatrix::read(path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_THAT(read->entries.at(name).means(), ElementsAre(1, 2, 0.5f));
  put(imatrix_number(1) + entry + imatrix_number(4) + imatrix_number(5) + "a.txt");
  read = ImportanceMatrix::read(path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->chunks, 4);
  EXPECT_THAT(read->datasets, ElementsAre("a.txt"));
  for (size_t cut = 5; cut < entry.size(); cut += 7) {
    put((imatrix_number(1) + entry).substr(0, cut));
    fails("the file ends early");
  }
  put(imatrix_number(1) + imatrix_number(-4));
  fails("length of a name is -4");
  put(imatrix_number(-1));
  fails("neither a GGUF file nor an importance matrix");
}

TEST_F(Imatrix, BadValuesAreNamed) {
  ImportanceMatrix matrix;
  matrix.entries["a"] = {{1, -2}, {1}};
  ASSERT_TRUE(matrix.write(path()).ok());
  fails("tensor \"a.in_sum2\": a mean square is -2");
  matrix.entries["a"] = {{1, std::numeric_limits<float>::infinity()}, {1}};
  ASSERT_TRUE(matrix.write(path()).ok());
  fails("a mean square is inf");
  GgufWriter writer;
  writer.set("general.type", "model");
  ASSERT_TRUE(writer.write(path()).ok());
  fails("general.type is \"model\", expected \"imatrix\"");
  matrix.entries.clear();
  ASSERT_TRUE(matrix.write(path()).ok());
  fails("an importance matrix of no tensors");
}

}  // namespace
}  // namespace redline
