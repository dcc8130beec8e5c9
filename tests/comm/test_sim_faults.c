/* tests/comm/test_sim_faults.c: a thousand random collectives with random faults in virtual time. Whatever
 * happens: no wrong result counts as success, everyone who lives ends soon after the deadline, whoever fails
 * names a member that is missing, and the same seed gives the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_fixture.h"
#include "collective_case.h"

enum { RUNS = 1000, MEMBERS_MAX = 9, FAULTS_MAX = 3, ROUNDS = 3, TURNS_MAX = 1000000 };
static const double deadline = 20, grace = 5;

/* ---- what is drawn from the seed ---- */

static uint64_t draws;

static uint64_t draw(uint64_t below) {
  uint64_t z = ++draws * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % below;
}

static double draw_between(double low, double high) {
  return low + (high - low) * (double)draw(1 << 20) / (1 << 20);
}

typedef struct scene {
  uint64_t seed;
  int members;
  collective_case test;
  int64_t counts[MEMBERS_MAX * MEMBERS_MAX];
  int hosts[MEMBERS_MAX];
  double speeds[MEMBERS_MAX];
  tsr_sim_fault faults[FAULTS_MAX];
  tsr_sim_options options;
  bool may_miss[MEMBERS_MAX]; /* whoever misses somebody, misses one of these */
  bool nobody_missing;
  double waiting; /* seconds by which faults may put off the end */
} scene;

static void draw_fault(scene *s, tsr_sim_fault *fault) {
  *fault = (tsr_sim_fault){.kind = (tsr_sim_fault_kind)draw(5),
                           .member = (int)draw((uint64_t)s->members),
                           .event = 1 + (int64_t)draw(20)};
  bool strikes_member = fault->kind == TSR_SIM_KILL || fault->kind == TSR_SIM_STOP;
  bool too_long = fault->kind == TSR_SIM_STOP && draw(3) == 0;
  fault->seconds = too_long ? draw_between(1.5, 3) * deadline : draw_between(0, 0.8) * deadline;
  if (strikes_member && draw(2)) {
    fault->event = 0;
    fault->at = draw_between(0, 0.01);
  }
  if (fault->kind == TSR_SIM_KILL || fault->kind == TSR_SIM_LOSE || too_long) {
    s->may_miss[fault->member] = true;
    s->nobody_missing = false;
  } else {
    s->waiting += fault->seconds;
  }
}

static void draw_collective(scene *s) {
  static const tsr_dtype wires[] = {TSR_F32, TSR_F32, TSR_BF16, TSR_F16};
  tsr_collective_kind kind = (tsr_collective_kind)draw(TSR_COLLECTIVE_KINDS);
  int pattern = (int)draw(COUNT_PATTERNS);
  if (kind == TSR_ALL_TO_ALL)
    case_counts_of_pairs(pattern, s->members, s->counts);
  else
    case_counts(pattern, s->members, s->counts);
  tsr_dtype dtype = draw(3) ? TSR_F32 : TSR_F64;
  s->test = (collective_case){.options = {.kind = kind,
                                          .dtype = dtype,
                                          .reduction = draw(2) ? TSR_MAX : TSR_SUM,
                                          .root = (int)draw((uint64_t)s->members),
                                          .counts = s->counts,
                                          .member_count = s->members,
                                          .algorithm = (tsr_algorithm)draw(TSR_ALGORITHM_COUNT),
                                          .wire = wires[dtype == TSR_F32 ? draw(4) : 0],
                                          .hosts = s->hosts},
                              .in_place = draw(2)};
}

static void draw_scene(scene *s, uint64_t seed) {
  draws = seed << 20;
  *s = (scene){.seed = seed, .members = 2 + (int)draw(MEMBERS_MAX - 1), .nobody_missing = true};
  for (int i = 0; i < s->members; i++) {
    s->hosts[i] = (int)draw(3);
    s->speeds[i] = draw_between(0.5, 2);
  }
  draw_collective(s);
  tsr_sim_options_init(&s->options);
  s->options.seed = seed;
  s->options.hosts = s->hosts;
  s->options.speeds = s->speeds;
  s->options.host_latency = draw_between(0, 1e-4);
  s->options.network_latency = draw_between(0, 1e-3);
  s->options.host_bandwidth = draw_between(1e8, 1e10);
  s->options.network_bandwidth = draw_between(1e7, 1e9);
  s->options.reduce_bandwidth = draw_between(1e8, 1e10);
  s->options.faults = s->faults;
  s->options.fault_count = 1 + draw(FAULTS_MAX);
  for (size_t i = 0; i < s->options.fault_count; i++) draw_fault(s, &s->faults[i]);
}

/* ---- one run ---- */

typedef struct outcome {
  tsr_status status; /* of the last round that the member took part in */
  int missing;       /* whom it named */
  int rounds;        /* ended well */
  double ended;
} outcome;

typedef struct run {
  tsr_group *group;
  case_member members[MEMBERS_MAX];
  outcome outcomes[MEMBERS_MAX];
  bool running[MEMBERS_MAX];
  double began;
} run;

static void member_ends(const scene *s, run *r, int i, tsr_status status) {
  outcome *o = &r->outcomes[i];
  r->running[i] = false;
  o->status = status;
  o->missing = status == TSR_OK ? -1 : error.rank;
  o->ended = tsr_group_now_of(r->group, i);
  if (status != TSR_OK) return;
  o->rounds++;
  const char *wrong = case_member_check(&r->members[i], &s->test);
  if (wrong)
    fail_msg("seed %llu: a wrong result was returned as success: %s", (unsigned long long)s->seed, wrong);
}

static void start_round(const scene *s, run *r) {
  r->began = tsr_group_now(r->group);
  for (int i = 0; i < s->members; i++) {
    case_member_fill(&r->members[i], &s->test);
    tsr_group_spend(r->group, i, draw_between(0, 1e-3));
    r->running[i] = true;
  }
  for (int i = 0; i < s->members; i++) {
    tsr_status status = case_member_start(&r->members[i], &s->test, &error);
    if (status != TSR_OK) member_ends(s, r, i, status);
  }
}

static double latest_end(const scene *s, const run *r) {
  return r->began + s->waiting + deadline + grace;
}

/* Where all are dead, nobody is left to miss anybody. */
static bool nobody_lives(const scene *s, run *r) {
  for (int i = 0; i < s->members; i++)
    if (r->running[i] && !s->may_miss[i]) return false;
  if (tsr_group_now(r->group) < latest_end(s, r)) return false;
  for (int i = 0; i < s->members; i++)
    if (r->running[i]) r->outcomes[i] = (outcome){.status = TSR_ERROR_RANK_LOST, .missing = i};
  return true;
}

/* Everyone is asked in turn, as if each were a process. */
static void drive(const scene *s, run *r) {
  int running = s->members;
  for (int turn = 0; running && !nobody_lives(s, r); turn++) {
    if (turn == TURNS_MAX) fail_msg("seed %llu: it never ends", (unsigned long long)s->seed);
    running = 0;
    for (int i = 0; i < s->members; i++) {
      bool done = false;
      if (!r->running[i]) continue;
      tsr_status status = tsr_collective_test(r->members[i].collective, &done, &error);
      if (done || status != TSR_OK) member_ends(s, r, i, status);
      running += r->running[i];
    }
  }
}

static bool round_was_good(const scene *s, const run *r) {
  for (int i = 0; i < s->members; i++)
    if (r->outcomes[i].status != TSR_OK) return false;
  return true;
}

static void check_round(const scene *s, const run *r) {
  for (int i = 0; i < s->members; i++) {
    const outcome *o = &r->outcomes[i];
    const char *wrong = NULL;
    if (o->status != TSR_OK && o->status != TSR_ERROR_RANK_LOST) wrong = "has another error";
    if (o->status == TSR_ERROR_RANK_LOST && (o->missing < 0 || !s->may_miss[o->missing]))
      wrong = "names another";
    if (o->status != TSR_OK && s->nobody_missing) wrong = "misses somebody";
    if (o->ended > latest_end(s, r) && !s->may_miss[i]) wrong = "ended late";
    if (wrong)
      fail_msg("seed %llu: member %d of %d %s (status %d, missing %d, at %g s): %s",
               (unsigned long long)s->seed, i, s->members, wrong, (int)o->status, o->missing, o->ended,
               error.message);
  }
}

static void play(const scene *s, outcome *outcomes) {
  run r = {0};
  if (tsr_group_create_sim_with(context, s->members, TSR_GROUP_OPTIONS(.deadline_seconds = deadline),
                                &s->options, &r.group, &error) != TSR_OK)
    fail_msg("%s", error.message);
  for (int i = 0; i < s->members; i++)
    if (!case_member_setup(r.group, &s->test, i, &r.members[i], &error)) fail_msg("%s", error.message);
  for (int round = 0; round < ROUNDS && round_was_good(s, &r); round++) {
    start_round(s, &r);
    drive(s, &r);
    check_round(s, &r);
  }
  memcpy(outcomes, r.outcomes, sizeof r.outcomes);
  for (int i = 0; i < s->members; i++) case_member_release(&r.members[i]);
  tsr_group_destroy(&r.group);
}

/* ---- all of them ---- */

static bool are_same(const outcome *a, const outcome *b) {
  for (int i = 0; i < MEMBERS_MAX; i++)
    if (a[i].status != b[i].status || a[i].missing != b[i].missing || a[i].rounds != b[i].rounds ||
        memcmp(&a[i].ended, &b[i].ended, sizeof a[i].ended))
      return false;
  return true;
}

static void a_thousand_faulty_runs(void **state) {
  (void)state;
  int good = 0, lost = 0, partly = 0;
  for (uint64_t seed = 1; seed <= RUNS; seed++) {
    scene s;
    outcome first[MEMBERS_MAX], second[MEMBERS_MAX];
    draw_scene(&s, seed);
    uint64_t drawn = draws;
    play(&s, first);
    draws = drawn;
    play(&s, second);
    if (!are_same(first, second)) fail_msg("seed %llu: the second run differs", (unsigned long long)seed);
    int failed = 0, ended_well = 0;
    for (int i = 0; i < s.members; i++) *(first[i].status == TSR_OK ? &ended_well : &failed) += 1;
    good += !failed;
    lost += !ended_well;
    partly += failed && ended_well;
  }
  print_message("%d runs: %d good, %d lost for all, %d for some\n", RUNS, good, lost, partly);
  /* The faults do strike, in all manners. */
  assert_true(good > RUNS / 5 && lost > RUNS / 10 && partly > RUNS / 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_thousand_faulty_runs),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}
