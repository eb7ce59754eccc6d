#include "paper/experiments.h"

#include <array>

namespace lethe::paper {
namespace {

constexpr std::array kExperiments = {
    Experiment{"sv-deletion-audit",
               "A key removed by the maintained solver against a solve that never saw it, in four "
               "regimes, beside the decay of its coefficient",
               {true, true, true},
               300,
               &RunDeletionAudit},
    Experiment{"sv-deletion-latency",
               "The time of a removal against that of solving again without the key",
               {true, false, false},
               30,
               &RunDeletionLatency},
    Experiment{
        "sv-trajectories",
        "Sequences of 64 additions and removals, compared with a solve from scratch after each",
        {true, false, false},
        80,
        &RunTrajectories},
    Experiment{
        "sv-rare-recall",
        "Recall of rare items under a budget: the support set against heavy hitters, a random "
        "choice and the most recent keys",
        {true, false, false},
        60,
        &RunRareRecall},
    Experiment{
        "sv-icu-stream",
        "Which hours of an ICU stay a budget keeps: the support set against self-mass, a random "
        "choice and the most recent hours, on synthetic and on real vitals",
        {false, true, false},
        0,
        &RunIcuStream},
    Experiment{
        "sv-selective-copy",
        "Ten items among growing filler: the size of the support and the recall of the items",
        {true, false, false},
        20,
        &RunSelectiveCopy},
    Experiment{
        "sv-negative-control",
        "Ten distinct pairs, trained readouts: the gate adds nothing where nothing is redundant",
        {false, false, false},
        0,
        &RunNegativeControl},
    Experiment{"sv-reserve-counterexample",
               "A reserve key may be dropped now, and matter again after a later key",
               {false, false, false},
               0,
               &RunReserveCounterexample},
};

}  // namespace

absl::Span<const Experiment> Experiments() { return kExperiments; }

}  // namespace lethe::paper
