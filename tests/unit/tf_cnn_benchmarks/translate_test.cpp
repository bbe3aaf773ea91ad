#include "bench/tf_cnn_benchmarks/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "base/text.h"
#include "bench/tf_cnn_benchmarks/flags.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

TfFlagValues values_of(const Words& words) {
  TfFlagValues flags;
  for (const std::string& word : spelled_out(words)) {
    if (word.empty()) continue;  // it became the value of the flag before it
    const size_t equals = word.find('=');
    flags.given[word.substr(2, equals - 2)] = equals == word.npos ? "" : word.substr(equals + 1);
  }
  return flags;
}

std::string command_for(Words words, bool launched = false) {
  words.insert(words.begin(), "--model=resnet50");
  return joined(translated(values_of(words), {}, launched).words, " ");
}

std::string refusal_of_flags(const Words& words, bool launched = false) {
  return refusal_of([&] { translated(values_of(words), {}, launched); });
}

TEST(TfFlags, EachIsDeclaredOnceAndTakesItsDefault) {
  std::set<std::string> names;
  for (const TfFlag& flag : tf_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_NE(*flag.meaning, '\0') << flag.name;
    if (*flag.standard != '\0') {
      EXPECT_NO_THROW(check_tf_value(flag, flag.standard)) << flag.name;
    }
  }
  // The flags are those of benchmark_cnn.py, and one of tf_cnn_benchmarks.py.
  EXPECT_GE(names.size(), 138U);
}

TEST(TfFlags, ValuesAreOfTheirKind) {
  EXPECT_THROW(check_tf_value(*find_tf_flag("batch_size"), "x"), std::invalid_argument);
  EXPECT_THROW(check_tf_value(*find_tf_flag("momentum"), "much"), std::invalid_argument);
  EXPECT_THROW(check_tf_value(*find_tf_flag("device"), "tpu"), std::invalid_argument);
  EXPECT_NO_THROW(check_tf_value(*find_tf_flag("job_name"), ""));
}

TEST(TfTranslation, DefaultsAreThoseOfThere) {
  EXPECT_EQ(command_for({}),
            "run --device cuda --model resnet50_v1 --classes 1001 --precision fp32 --batch 64 "
            "--steps 100 --warmup 10 --momentum 0 --weight-decay 4e-5 --seed 1234");
}

TEST(TfTranslation, EachMappedFlagHasItsOption) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--use_fp16"}, "--precision fp16"},
      {{"--model=resnet50_v1.5"}, "--model resnet50 "},
      {{"--model=resnet101"}, "--model resnet101_v1 --classes 1001 --precision fp32 --batch 32 "},
      {{"--model=official_resnet50"},
       "--model resnet50 --classes 1001 --precision fp32 --batch 128"},
      {{"--batch_size=0"}, "--batch 64 "},
      {{"--batch_size=256"}, "--batch 256 "},
      {{"--num_batches=500"}, "--steps 500 "},
      {{"--num_epochs=1"}, "--steps 20019 "},
      {{"--num_epochs=0.5", "--num_gpus=4"}, "--steps 2503 "},
      {{"--num_warmup_batches=0"}, "--warmup 1 "},
      {{"--num_warmup_batches=20"}, "--warmup 20 "},
      {{"--autotune_threshold=2"}, "--warmup 20 "},
      {{"--optimizer=momentum"}, "--momentum 0.9 "},
      {{"--optimizer=momentum", "--momentum=0.5"}, "--momentum 0.5 "},
      {{"--weight_decay=1e-4"}, "--weight-decay 1e-4"},
      {{"--init_learning_rate=0.1"}, "--learning-rate 0.1"},
      {{"--use_fp16", "--fp16_loss_scale=128"}, "--loss-scale 128"},
      {{"--use_fp16", "--fp16_enable_auto_loss_scale"}, "--loss-scale dynamic"},
      {{"--tf_random_seed=7"}, "--seed 7"},
      {{"--gpu_indices=3"}, "--gpu 3"},
      {{"--device=CPU", "--num_intra_threads=4"}, "--threads 4"},
      {{"--device=cpu"}, "run --device cpu "},
      {{"--num_gpus=4"}, "sweep 1x1x4 --repeats 1 --job-limit 240h --model "},
      {{"--num_gpus=2", "--device=cpu"},
       "sweep 1x1x2 --repeats 1 --job-limit 240h --hosts localhost:0 --model "},
      {{"--num_gpus=2", "--variable_update=independent"}, "--update independent"},
      {{"--num_gpus=2", "--gradient_repacking=8"}, "--bucket-mib 13"},
      {{"--num_gpus=2", "--use_fp16", "--gradient_repacking=8"}, "--bucket-mib 7"},
      {{"--num_gpus=2", "--use_fp16", "--nocompact_gradient_transfer"}, "--gradient-type fp32"},
  };
  for (const auto& [words, option] : cases) {
    EXPECT_THAT(command_for(words) + " ", HasSubstr(option)) << joined(words, " ");
  }
}

TEST(TfTranslation, ARankOfALauncherIsARun) {
  EXPECT_THAT(command_for({"--variable_update=horovod", "--gradient_repacking=4"}, true),
              testing::AllOf(HasSubstr("run --device cuda"), HasSubstr("--bucket-mib 25")));
  EXPECT_THAT(refusal_of_flags({"--model=resnet50", "--num_gpus=2"}, true),
              HasSubstr("mpirun or srun starts the ranks"));
}

TEST(TfTranslation, OptionsBehindTwoDashesComeLast) {
  EXPECT_THAT(translated(values_of({"--model=resnet50"}), {"--repeats", "3"}, false).words.back(),
              "3");
}

TEST(TfTranslation, OnlyTheDefaultOfWhatIsRefusedIsTaken) {
  for (const TfFlag& flag : tf_flags()) {
    if (flag.becomes != TfFlagClass::refused) continue;
    TfFlagValues flags = values_of({"--model=resnet50"});
    flags.given[flag.name] = flag.standard;
    EXPECT_NO_THROW(translated(flags, {}, false)) << flag.name;
    flags.given[flag.name] = flag.kind == TfFlagKind::boolean
                                 ? (std::string(flag.standard) == "true" ? "false" : "true")
                                 : "77";
    EXPECT_THAT([&] { translated(flags, {}, false); },
                testing::ThrowsMessage<std::invalid_argument>(HasSubstr(flag.meaning)))
        << flag.name;
  }
  EXPECT_EQ(refusal_of_flags({"--model=resnet50", "--trace_file="}), "");
}

TEST(TfTranslation, WhatIsNotHereIsRefusedWithTheReason) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{}, "--model is needed"},
      {{"--model=inception4"}, "does not have this network; it has resnet50, resnet50_v1.5"},
      {{"--model=vit_b_16"}, "does not have this network; train it by nearmetal run"},
      {{"--model=resnet50", "--data_name=cifar10"}, "--data_name=cifar10: networks are those"},
      {{"--model=resnet50", "--optimizer=adam"}, "--optimizer=adam: "},
      {{"--model=resnet50", "--num_gpus=0"}, "--num_gpus=0: "},
      {{"--model=resnet50", "--num_epochs=1e300"}, "--num_epochs must be a number from 0 to "},
      {{"--model=resnet50", "--num_gpus=-1"}, "--num_gpus must be an integer from 0 to "},
      {{"--model=resnet50", "--display_every=0"}, "--display_every=0: "},
      {{"--model=resnet50", "--gpu_indices=0,1"}, "CUDA_VISIBLE_DEVICES"},
      {{"--model=resnet50", "--all_reduce_spec=xring"}, "NCCL alone sums"},
      {{"--model=resnet50", "--device=cpu", "--all_reduce_spec=nccl"}, "MPI sums between CPUs"},
      {{"--model=resnet50", "--num_gpus=2", "--horovod_device=cpu"}, "--horovod_device=cpu: "},
      {{"--model=resnet50", "--variable_update=distributed_replicated"}, "by mpirun"},
      {{"--model=resnet50", "--num_epochs=1", "--num_batches=3"}, "says how long already"},
  };
  for (const auto& [words, reason] : cases) {
    EXPECT_THAT(refusal_of_flags(words), HasSubstr(reason)) << joined(words, " ");
  }
}

TEST(TfTranslation, AllRefusalsAreToldAtOnceAndWhatRemainsWithoutThem) {
  const Words words = {"--model=alexnet",      "--data_dir=/d",     "--optimizer=adam",
                       "--num_gpus=2",         "--use_fp16",        "--eval",
                       "--ps_hosts=a:1",       "--gpu_indices=0,1", "--all_reduce_spec=xring",
                       "--train_dir=/a place", "--gradient_clip=0"};
  const std::string refusal = refusal_of([&] {
    translated(values_of(words), {"--repeats", "2"}, false);
  });
  for (const char* flag :
       {"--model=alexnet: nearmetal does not", "take vgg16 instead",
        "--data_dir=/d: ", "--optimizer=adam: ", "--eval=true: ", "--ps_hosts=a:1: ",
        "--gpu_indices=0,1: ", "--all_reduce_spec=xring: ", "--gradient_clip=0: "}) {
    EXPECT_THAT(refusal, HasSubstr(flag));
  }
  EXPECT_THAT(refusal,
              testing::EndsWith("; what remains: nearmetal tf_cnn_benchmarks --model=vgg16 "
                                "--num_gpus=2 '--train_dir=/a place' --use_fp16=true -- "
                                "--repeats 2"));
  EXPECT_NO_THROW(translated(
      values_of({"--model=vgg16", "--num_gpus=2", "--train_dir=/a place", "--use_fp16=true"}),
      {"--repeats", "2"}, false));
}

// What to take in place of each network of model_config.py that is like one of ours.
TEST(TfTranslation, NetworksThatAreNotHereNameOneThatIs) {
  for (const auto& [name, other] :
       std::vector<std::pair<std::string, std::string>>{{"alexnet", "vgg16"},
                                                        {"googlenet", "official_resnet18"},
                                                        {"inception3", "resnet101"},
                                                        {"vgg19", "vgg16"},
                                                        {"resnet50_v2", "resnet50_v1.5"}}) {
    EXPECT_THAT(refusal_of_flags({"--model=" + name}),
                testing::AllOf(HasSubstr("; take " + other + " instead; "),
                               testing::EndsWith(" --model=" + other)));
  }
}

// Python takes 0 as it takes None, but where it asks for None.
TEST(TfTranslation, WhatAsksForNothingIsTaken) {
  EXPECT_EQ(
      refusal_of_flags({"--model=resnet50", "--eval_during_training_every_n_steps=0", "--noeval",
                        "--stop_at_top_1_accuracy=0.0", "--use_unified_memory=false",
                        "--ps_hosts=", "--num_learning_rate_warmup_epochs=0", "--task_index=0",
                        "--job_name=", "--variable_consistency=strong", "--cross_replica_sync=true",
                        "--nofp16_vars", "--train_dir=/x", "--print_training_accuracy",
                        "--trace_file=t", "--use_nccl"}),
      "");
}

TEST(TfTranslation, WhatHasNoEffectIsSaidOnce) {
  const auto remarks = [](const Words& words) {
    return translated(values_of(words), {}, false).remarks;
  };
  EXPECT_THAT(remarks({"--model=resnet50", "--num_gpus=1"}), testing::IsEmpty());
  EXPECT_THAT(remarks({"--model=resnet50", "--xla", "--momentum=0.8", "--fp16_loss_scale=2",
                       "--gradient_repacking=2"}),
              ElementsAre(HasSubstr("--fp16_loss_scale, --gradient_repacking, --momentum, --xla")));
}

TEST(TfTranslation, RefusalsNameTheFlagsThatWereGiven) {
  const TfFlagValues flags = values_of({"--model=resnet50", "--num_batches=0", "--batch_size=2"});
  const std::string message = "--steps=0, --steps-of and --warmup of --batch";
  EXPECT_EQ(in_flags(translated(flags, {}, false), message),
            "--num_batches=0, --steps-of and --warmup of --batch_size");
  EXPECT_EQ(in_flags(translated(flags, {"--steps=0"}, false), message),
            "--steps=0, --steps-of and --warmup of --batch_size")
      << "over the flag";
}

TEST(TfModels, NamesGoBothWays) {
  EXPECT_EQ(tf_model_name("resnet50_v1"), "resnet50");
  EXPECT_EQ(tf_model_name("resnet50"), "resnet50_v1.5");
  EXPECT_EQ(tf_model_name("resnet20"), "resnet20");
}

TEST(TfTranslation, StepsAreShownAsTheCommandLineSays) {
  EXPECT_EQ(display_every_of({"nearmetal", "tf_cnn_benchmarks", "-display_every", "3"}), 3);
  EXPECT_EQ(display_every_of({"nearmetal", "tf_cnn_benchmarks", "--", "--display_every=3"}), 10);
  EXPECT_EQ(display_every_of({"nearmetal", "run", "--display_every=3"}), 10);
  EXPECT_EQ(display_every_of({}), 10);
}

TEST(TfTranslation, ForwardOnlyIsInference) {
  EXPECT_EQ(command_for({"--forward_only", "--use_fp16", "--momentum=0.8", "--num_gpus=2"}),
            "sweep 1x1x2 --repeats 1 --job-limit 240h --model resnet50_v1 --classes 1001 "
            "--precision fp16 --batch 64 --inference --steps 100 --warmup 10 --seed 1234");
  EXPECT_THAT(
      translated(values_of({"--model=resnet50", "--forward_only", "--momentum=0.8"}), {}, false)
          .remarks,
      ElementsAre(HasSubstr("without effect here: --momentum")));
}

}  // namespace
}  // namespace nearmetal
