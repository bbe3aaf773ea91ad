// The fields of a pipeline, with what must hold of them.
#include "reports/json/fields.h"

namespace nearmetal::json {

void fields(Archive& field, TaskMark& mark) {
  field.type("task_mark", "When a stage computed a pass of a micro-batch");
  field("pass", mark.task.pass);
  field("micro_batch", mark.task.micro_batch, at_least(0));
  field("begin_seconds", mark.begin_seconds, "Times by the rank's own clock");
  field("end_seconds", mark.end_seconds);
}

void fields(Archive& field, PipelineSeconds& seconds) {
  field.type("stage_seconds",
             "Where the time of a step goes in a stage: means over the window, by the device's "
             "clock; what is left of the span are launches");
  field("span", seconds.span, at_least(0),
        "From the first wait for a value until all stages are through, without exposed "
        "communication");
  field("forward", seconds.forward, at_least(0), "Computing, all micro-batches");
  field("backward", seconds.backward, at_least(0), "Computing, all micro-batches");
  field("waiting", seconds.waiting, at_least(0),
        "Waiting for what another stage had not yet computed or sent");
  field("sending", seconds.sending, at_least(0),
        "Held up by what was still on its way to another stage");
}

void fields(Archive& field, RankStage& stage) {
  field.type("rank_stage", "A rank as a stage of a pipeline");
  field("stage", stage.stage, at_least(0));
  field("replica", stage.replica, at_least(0), "Replica of the network to which the stage belongs");
  field("first_node", stage.first_node, "First node of the network that it computes");
  field("last_node", stage.last_node);
  field("parameters", stage.parameters, at_least(0));
  field("bytes_gpipe", stage.gpipe_bytes, at_least(0),
        "Memory that its kernels take on the device with schedule gpipe");
  field("bytes_1f1b", stage.one_forward_one_backward_bytes, at_least(0), "The same with 1f1b");
  field("seconds", stage.seconds);
  field("boundary_bytes", stage.boundary_bytes, at_least(0),
        "Bytes of a micro-batch to the next stage, and of its gradient back; 0: the last stage");
  field("boundary_seconds", stage.boundary_seconds, at_least(0),
        "Time for known values to pass the stage's boundaries, with nothing else running");
  field("boundary_exact", stage.boundary_exact,
        "Known values came through its boundaries as they were sent; null: not tested");
  field("marks", stage.marks, "Marks of the last step of the run");
}

void fields(Archive& field, PipelineBubble& bubble) {
  field.type("bubble", "The share of the stages' time in which they compute nothing");
  field("measured", bubble.measured, within(0, 1),
        "1 - sum of (forward + backward) / sum of spans, over the stages of the first replica");
  field("simulated", bubble.simulated, within(0, 1),
        "Bubble of the same schedule with the measured mean times of these stages, without "
        "transfers");
  field.added(
      "simulated_with_transfers", bubble.simulated_with_transfers, within(0, 1),
      "Bubble of the same schedule with the times of each pass of each micro-batch (its share in "
      "`marks`) and with transfers, one at a time in each direction, each as long as the lesser "
      "boundary_seconds of its two stages");
  field("ideal", bubble.ideal, within(0, 1),
        "(stages - 1) / (micro-batches + stages - 1): bubble of equal stages without transfers");
}

void fields(Archive& field, PipelineFigures& pipeline) {
  field.type("pipeline", "The stages of the network together");
  field("library", pipeline.library, "What moved values between stages, and its version");
  field("stages", pipeline.stages, at_least(1));
  field("replicas", pipeline.replicas, at_least(1), "Replicas of the network");
  field("bubble", pipeline.bubble);
}

}  // namespace nearmetal::json
