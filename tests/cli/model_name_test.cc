#include "cli/model_name.h"
#include "cli/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/table.h"
#include "cli/token_list.h"
#include "support/temporary_folder.h"

namespace redline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ModelName : public ::testing::Test {
 protected:
  ModelName() {
    fs::create_directories(folder / "assets" / "tales");
    fs::current_path(folder);
  }
  ~ModelName() override { fs::current_path(before); }
  void write(const fs::path& name, std::string_view bytes) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  fs::path before = fs::current_path();
  testing::TemporaryFolder temporary;
  fs::path folder = temporary.path();
};

TEST_F(ModelName, PathsAndAssets) {
  write("a.gguf", "GGUF");
  EXPECT_EQ(find_model("a.gguf").value(), "a.gguf");
  EXPECT_EQ(find_model((folder / "a.gguf").string()).value(), (folder / "a.gguf").string());
  EXPECT_EQ(find_model("tales").value(), "assets/tales");
  EXPECT_EQ(find_model("assets/tales").value(), "assets/tales");
}

TEST_F(ModelName, MissingOnesNameTheNearest) {
  write("llama-7b.gguf", "GGUF");
  const auto message = [](const std::string& name) {
    const auto found = find_model(name);
    EXPECT_EQ(found.status().code(), Code::not_found);
    return found.status().message();
  };
  EXPECT_EQ(message("lama-7b.gguf"),
            "model lama-7b.gguf: no such file or "
            "folder; did you mean llama-7b.gguf?");
  EXPECT_EQ(message("tails"), "model tails: no such file or folder; did you mean assets/tales?");
  EXPECT_EQ(message("assets/taels"), "model assets/taels: no such file or folder; did you mean assets/tales?");
  EXPECT_EQ(message("asets/tales"), "model asets/tales: no such file or folder; did you mean assets?");
  EXPECT_THAT(message((folder / "llama-7b.guf").string()),
              HasSubstr("did you mean " + (folder / "llama-7b.gguf").string()));
  EXPECT_THAT(message("zzzzzzzzzz"), HasSubstr("bundled: assets/tales"));
  EXPECT_EQ(message((folder / "none" / "zzzzzzzzzz").string()),
            "model " + (folder / "none" / "zzzzzzzzzz").string() + ": no such file or folder");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(message("loop"), "model loop: is a link that leads nowhere (to loop)");
}

TEST_F(ModelName, BundledModelsAreFoundFromEveryPlaceOfTheProgram) {
  const auto roots = [&](const char* program) {
    std::vector<std::string> names;
    for (const fs::path& root : model_roots_of(folder / program)) names.push_back(root.string());
    return names;
  };
  const auto in = [&](const char* name) { return (folder / name).string(); };
  // Unpacked from an archive, and installed.
  EXPECT_EQ(roots("unpacked"), (std::vector<std::string>{"assets", in("unpacked/models"), in("share/redline")}));
  EXPECT_EQ(roots("usr/bin"), (std::vector<std::string>{"assets", in("usr/bin/models"), in("usr/share/redline")}));
  // Built in a source tree, started from any folder.
  fs::create_directories(folder / "source" / "assets" / "redline-tales");
  EXPECT_EQ(roots("source/build/release"),
            (std::vector<std::string>{"assets", in("source/build/release/models"), in("source/build/share/redline"),
                                      in("source/assets")}));
}

TEST_F(ModelName, OtherNames) {
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  EXPECT_EQ(find_model("hf:a/b").status().code(), Code::not_found);
  EXPECT_THAT(find_model("hf:a/b").status().message(), HasSubstr("nothing is fetched because HF_HUB_OFFLINE is set"));
  EXPECT_EQ(find_model("hf:a/b/c").status().code(), Code::invalid_argument);
  EXPECT_THAT(find_model("some/model").status().message(), HasSubstr("a model on Hugging Face is hf:some/model"));
  EXPECT_EQ(find_model("").status().code(), Code::invalid_argument);
}

TEST_F(ModelName, ShortNames) {
  EXPECT_EQ(short_name("a/b/c.gguf"), "c.gguf");
  EXPECT_EQ(short_name("a/b/"), "b");
  EXPECT_EQ(short_name("/hub/models--owner--the-name/snapshots/0123abcd"), "the-name");
  EXPECT_EQ(short_name("/hub/models--owner--name/snapshots/0123abcd/m-Q8_0.gguf"), "m-Q8_0.gguf");
}

TEST_F(ModelName, KindsByContent) {
  const auto kind = [](const char* path) { return detect_file_kind(path).value(); };
  write("x", std::string("GGUF\x03\0\0\0", 8));
  EXPECT_EQ(kind("x"), FileKind::kGguf);
  const auto header = [&](const std::string& text) {
    const uint64_t size = text.size();
    write("x", std::string(reinterpret_cast<const char*>(&size), 8) + text);
  };
  header("{}");
  EXPECT_EQ(kind("x"), FileKind::kSafetensors);
  header(R"({"transformer.blocks.0.attn.to_q.lora_A.weight": {}})");
  EXPECT_EQ(kind("x"), FileKind::kImageAdapter);
  header(R"({"lora_unet_blocks_0_attn.lora_down.weight": {}})");
  EXPECT_EQ(kind("x"), FileKind::kImageAdapter);
  header(R"({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {}})");
  EXPECT_EQ(kind("x"), FileKind::kTextAdapter);
  header(R"({"double_blocks.0.img_attn.qkv.weight": {}})");
  EXPECT_EQ(kind("x"), FileKind::kTransformer);
  const int32_t sizes[8] = {64, 172, 5, 8, 4, 512, 512, 0};
  write("x", std::string(reinterpret_cast<const char*>(sizes), sizeof sizes));
  EXPECT_EQ(kind("x"), FileKind::kLlama2c);
  write("assets/tales/config.json", "{}");
  EXPECT_EQ(kind("assets/tales"), FileKind::kModelFolder);
  write("pipeline/model_index.json", "{}");
  write("pipeline/vae/config.json", "{}");
  write("pipeline/scheduler/scheduler_config.json", "{}");
  EXPECT_EQ(kind("pipeline"), FileKind::kPipeline);
  EXPECT_EQ(kind("pipeline/vae"), FileKind::kComponent);
  EXPECT_EQ(kind("pipeline/vae/"), FileKind::kComponent);
  EXPECT_EQ(kind("pipeline/scheduler"), FileKind::kComponent);
  EXPECT_EQ(pipeline_around("pipeline/vae/weights.safetensors"), "pipeline");
  EXPECT_EQ(pipeline_around("assets/tales"), "");
  write("alone/config.json", R"({"_diffusers_version": "0.35"})");
  EXPECT_EQ(kind("alone"), FileKind::kComponent);
  write("peft/adapter_config.json", "{}");
  EXPECT_EQ(kind("peft"), FileKind::kTextAdapter);
  write("style/pytorch_lora_weights.safetensors", "");
  EXPECT_EQ(kind("style"), FileKind::kImageAdapter);
  EXPECT_EQ(image_adapter_file("style"), "style/pytorch_lora_weights.safetensors");
  EXPECT_EQ(image_adapter_file("x"), "x");
}

TEST_F(ModelName, NoKind) {
  const auto message = [](const char* path) {
    const auto kind = detect_file_kind(path);
    EXPECT_EQ(kind.status().code(), Code::invalid_argument);
    return kind.status().message();
  };
  write("x", "%PDF-1.7 .");
  EXPECT_THAT(message("x"), HasSubstr("x: unrecognized file format (10 bytes, beginning 25 50 44 46"));
  write("x", "PK\x03\x04....");
  EXPECT_THAT(message("x"), HasSubstr("x: is a file of PyTorch; give the model as safetensors"));
  write("x", "");
  EXPECT_EQ(message("x"), "x: incomplete: the file has 0 bytes");
  write("x", "GG");
  EXPECT_EQ(message("x"), "x: incomplete: the file has 2 bytes");
  write("x.safetensors", "abc");
  EXPECT_EQ(message("x.safetensors"), "x.safetensors: incomplete: the file has 3 bytes");
  EXPECT_THAT(message("assets"), HasSubstr("assets: the folder holds no model"));
}

TEST_F(ModelName, TokenLists) {
  EXPECT_THAT(parse_tokens("1,2, 3\n4").value(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(parse_tokens("[5, 6]").value(), ElementsAre(5, 6));
  EXPECT_THAT(parse_tokens("").value(), ElementsAre());
  EXPECT_EQ(parse_tokens("1,-2").status().message(), "'-2' is not a token id");
  EXPECT_EQ(parse_tokens("1,2x").status().message(), "'2x' is not a token id");
  EXPECT_EQ(parse_tokens("99999999999").status().code(), Code::invalid_argument);
  write("ids.txt", "7 8\n9\n");
  EXPECT_THAT(read_tokens("ids.txt").value(), ElementsAre(7, 8, 9));
  EXPECT_THAT(read_tokens("10,11").value(), ElementsAre(10, 11));
  EXPECT_EQ(read_tokens("nothing.txt").status().code(), Code::not_found);
  EXPECT_EQ(read_tokens("1,2x").status().message(), "'2x' is not a token id");
}

TEST(Table, AlignsByCharacters) {
  Table table({"name", "n", "note"}, {1});
  table.add({"é", "1", "x"});
  table.add({"abcdef", "100", ""});
  EXPECT_EQ(table.text(), "  name      n  note\n  é         1  x\n  abcdef  100\n");
  Table hostile({""});
  hostile.add({"a\x1b[31m\nb\x7f"});
  EXPECT_EQ(hostile.text(), "  a\\x1b[31m\\x0ab\\x7f\n");
  EXPECT_EQ(human_bytes(17), "17 bytes");
  EXPECT_EQ(human_bytes(999), "999 bytes");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(12345678), "12.3 MB");
  EXPECT_EQ(human_bytes(999999), "1.00 MB");
}

}  // namespace
}  // namespace redline::cli
