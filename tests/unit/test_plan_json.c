/* Room runtime/plan: documents. Plans and clusters come back as they went, byte for byte; the hash follows
 * the decision; other versions and damaged or hostile documents are errors, never a crash: whatever a mutated
 * plan is read as, the checker of lowered plans finds it sound. Also: the same input gives the same bytes,
 * and options are checked. */
#include "plan_support.h"

#include <jansson.h>
#include <math.h>

#include "plan/plan_json.h"

/* TSR_TEST_SMALL: a fifth of the mutations. */
static int turns(int all) {
  return getenv("TSR_TEST_SMALL") ? all / 5 : all;
}

static tsr_plan *random_plan(uint64_t seed) {
  plan_seed(seed);
  enum { MOST = 4 };
  plan_device devices[MOST];
  int members = (int)plan_between(1, MOST);
  for (int i = 0; i < members && i < MOST; i++) /* gcc 14 wants to see the bound */
    devices[i] = (plan_device){
        .gflops = (double)plan_between(1, 9), .memory_gb = 1, .panel = plan_chance(50) ? 16 : 0};
  tsr_cluster *cluster = plan_cluster(members, devices);
  tsr_plan *plan = plan_fit(plan_random_graph((int)plan_between(1, 9)), cluster,
                            TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_AUTO, .keep_all = plan_chance(70)));
  tsr_cluster_destroy(&cluster);
  return plan;
}

static tsr_status parse(const char *text, tsr_plan **out) {
  *out = NULL;
  return tsr_plan_parse(plan_context, text, strlen(text), out, &plan_error);
}

static void plans_come_back_as_they_went(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 60; seed++) {
    tsr_plan *plan = random_plan(seed), *same = random_plan(seed), *read;
    char *text = plan_text(plan, TSR_PLAN_JSON), *again = plan_text(same, TSR_PLAN_JSON);
    assert_string_equal(text, again); /* planning is deterministic */
    free(again);
    plan_ok(parse(text, &read));
    plan_check(read);
    again = plan_text(read, TSR_PLAN_JSON);
    assert_string_equal(text, again);
    assert_true(read->hash == plan->hash);
    char *tables = plan_text(plan, TSR_PLAN_EXPLAIN), *tables_again = plan_text(read, TSR_PLAN_EXPLAIN);
    assert_string_equal(tables, tables_again);
    free(text), free(again), free(tables), free(tables_again);
    tsr_plan_destroy(&plan);
    tsr_plan_destroy(&same);
    tsr_plan_destroy(&read);
  }
}

static void a_refusal_comes_back(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(2, (plan_device){.gflops = 1, .memory_gb = 1e-5});
  tsr_plan *plan = plan_make(plan_ffn(64, 64, 64, true, true), cluster, NULL), *read;
  assert_false(plan->feasible);
  char *text = plan_text(plan, TSR_PLAN_JSON), *tables = plan_text(plan, TSR_PLAN_TEXT);
  plan_ok(parse(text, &read));
  assert_false(read->feasible);
  assert_string_equal(read->reason, plan->reason);
  assert_non_null(strstr(tables, plan->reason));
  free(text), free(tables);
  tsr_plan_destroy(&plan);
  tsr_plan_destroy(&read);
  tsr_cluster_destroy(&cluster);
}

static char *dump(const json_t *document) {
  return json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
}

/* Parses, and once more with the hash that the contents give, as a forger would. */
static tsr_status parse_forged(json_t *document, tsr_plan **out) {
  char *text = dump(document);
  tsr_status status = parse(text, out);
  free(text);
  const char *contents = strstr(plan_error.message, "its contents give ");
  if (status != TSR_ERROR_MISMATCH || !contents) return status;
  char hash[17] = "";
  memcpy(hash, contents + strlen("its contents give "), 16);
  json_object_set_new(document, "hash", json_string(hash));
  text = dump(document);
  status = parse(text, out);
  free(text);
  return status;
}

static void the_hash_follows_the_decision(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 1, .memory_gb = 1});
  tsr_plan *plan = plan_fit(plan_ffn(64, 48, 96, true, true), cluster, TSR_PLAN_OPTIONS(.keep_all = true));
  char *text = plan_text(plan, TSR_PLAN_JSON);
  static const char *const rows[] = {"offsets", "layouts"};
  for (int which = 0; which < 2; which++) {
    json_t *document = json_loads(text, 0, NULL), *read;
    json_t *array = json_object_get(json_object_get(document, "decision"), rows[which]);
    for (size_t i = 0; i < json_array_size(array); i++) {
      read = json_deep_copy(document);
      json_t *row = json_array_get(json_object_get(json_object_get(read, "decision"), rows[which]), i);
      json_array_set_new(row, 1, json_integer(json_integer_value(json_array_get(row, 1)) ^ 1));
      tsr_plan *changed;
      char *mutated = dump(read);
      assert_int_not_equal(parse(mutated, &changed), TSR_OK); /* not allowed, or not this hash */
      assert_null(changed);
      free(mutated);
      json_decref(read);
    }
    json_decref(document);
  }
  /* A cut that is moved by one is a plan, of another hash. */
  json_t *document = json_loads(text, 0, NULL);
  json_t *offsets = json_object_get(json_object_get(document, "decision"), "offsets");
  for (size_t i = 0; i < json_array_size(offsets); i++) {
    json_t *row = json_array_get(offsets, i);
    json_array_set_new(row, 1, json_integer(json_integer_value(json_array_get(row, 1)) - 1));
    tsr_plan *forged;
    plan_ok(parse_forged(document, &forged));
    assert_true(forged->hash != plan->hash);
    plan_check(forged);
    tsr_plan_destroy(&forged);
  }
  json_decref(document);
  free(text);
  tsr_plan_destroy(&plan);
  tsr_cluster_destroy(&cluster);
}

/* --- damage -----------------------------------------------------------------------------------------------
 */

/* A random value somewhere in the document; *holder and its key or index say where. */
typedef struct spot {
  json_t *holder;
  char key[64];
  size_t index;
} spot;

static spot random_spot(json_t *document) {
  spot found = {document, "", 0};
  for (json_t *at = document;;) {
    found.holder = at;
    if (json_is_object(at)) {
      size_t wanted = (size_t)plan_between(0, (int64_t)json_object_size(at) - 1);
      void *iterator = json_object_iter(at);
      while (wanted--) iterator = json_object_iter_next(at, iterator);
      snprintf(found.key, sizeof found.key, "%s", json_object_iter_key(iterator));
      at = json_object_iter_value(iterator);
    } else {
      found.index = (size_t)plan_between(0, (int64_t)json_array_size(at) - 1);
      at = json_array_get(at, found.index);
    }
    bool leaf = !(json_is_object(at) && json_object_size(at)) && !(json_is_array(at) && json_array_size(at));
    if (leaf || plan_chance(7)) return found;
  }
}

static json_t *value_at(const spot *where) {
  return json_is_object(where->holder) ? json_object_get(where->holder, where->key)
                                       : json_array_get(where->holder, where->index);
}

static json_t *random_value(const json_t *old) {
  static const int64_t numbers[] = {0, 1, -1,      2,         -2,        -3,
                                    3, 7, 1 << 20, INT64_MAX, INT64_MIN, (int64_t)1 << 40};
  switch (plan_between(0, 8)) {
  case 0: return json_null();
  case 1: return json_string("x");
  case 2: return json_real(plan_chance(50) ? 1e300 : -0.5);
  case 3: return json_array();
  case 4: return json_boolean(plan_chance(50));
  case 5: return json_integer(numbers[plan_between(0, 11)]);
  default:
    if (json_is_integer(old))
      return json_integer((int64_t)((uint64_t)json_integer_value(old) + (uint64_t)plan_between(-4, 4)));
    if (json_is_real(old)) return json_real(json_real_value(old) * (plan_chance(50) ? 1e-12 : 1e12));
    if (json_is_boolean(old)) return json_boolean(!json_is_true(old));
    return json_integer(numbers[plan_between(0, 11)]);
  }
}

static void damage(json_t *document) {
  spot where = random_spot(document);
  bool remove = plan_chance(5);
  json_t *value = random_value(value_at(&where));
  if (json_is_object(where.holder)) {
    if (remove)
      json_object_del(where.holder, where.key);
    else
      json_object_set(where.holder, where.key, value);
  } else {
    if (remove)
      json_array_remove(where.holder, where.index);
    else
      json_array_set(where.holder, where.index, value);
  }
  json_decref(value);
}

static void check_error(tsr_status status) {
  assert_true(status < 0);
  assert_int_equal(plan_error.status, status);
  assert_true(*plan_error.message && !strchr(plan_error.message, '\n'));
}

/* Half of the damage is done to the decision itself. */
static void damaged_plans_are_errors_or_sound(void **state) {
  (void)state;
  int sound = 0, refused = 0;
  for (uint64_t seed = 0; seed < 12; seed++) {
    tsr_plan *plan = random_plan(300 + seed);
    char *text = plan_text(plan, TSR_PLAN_JSON);
    for (int i = 0; i < turns(150); i++) {
      json_t *document = json_loads(text, 0, NULL);
      tsr_plan *read;
      for (int hits = (int)plan_between(1, 3); hits > 0; hits--) {
        json_t *decision = json_object_get(document, "decision");
        damage(json_object_size(decision) && plan_chance(50) ? decision : document);
      }
      tsr_status status = parse_forged(document, &read);
      if (status == TSR_OK) {
        plan_check(read);
        char *again = plan_text(read, plan_chance(10) ? TSR_PLAN_EXPLAIN : TSR_PLAN_TEXT);
        free(again);
      } else {
        check_error(status);
        assert_null(read);
      }
      sound += status == TSR_OK;
      refused += status != TSR_OK;
      tsr_plan_destroy(&read);
      json_decref(document);
    }
    free(text);
    tsr_plan_destroy(&plan);
  }
  printf("%d sound, %d refused\n", sound, refused);
  assert_true(sound > turns(100) && refused > turns(500));
}

static void damaged_bytes_are_errors(void **state) {
  (void)state;
  tsr_plan *plan = random_plan(5), *read;
  char *text = plan_text(plan, TSR_PLAN_JSON);
  size_t bytes = strlen(text);
  for (int i = 0; i < turns(400); i++) {
    char *damaged = strdup(text);
    for (int hits = (int)plan_between(1, 4); hits > 0; hits--)
      damaged[plan_between(0, (int64_t)bytes - 1)] = (char)plan_between(0, 255);
    size_t length = plan_chance(50) ? bytes : (size_t)plan_between(0, (int64_t)bytes);
    read = NULL;
    tsr_status status = tsr_plan_parse(plan_context, damaged, length, &read, &plan_error);
    if (status == TSR_OK)
      plan_check(read);
    else
      check_error(status);
    tsr_plan_destroy(&read);
    free(damaged);
  }
  free(text);
  tsr_plan_destroy(&plan);
}

/* --- what is said of a decision that contradicts itself ---------------------------------------------------
 */

static tsr_plan *split_plan(void) {
  tsr_cluster *cluster = plan_cluster_of(2, (plan_device){.gflops = 1, .memory_gb = 1});
  tsr_plan *plan = plan_fit(plan_ffn(64, 48, 96, false, true), cluster,
                            TSR_PLAN_OPTIONS(.replicate = TSR_REPLICATE_NEVER, .keep_all = true));
  tsr_cluster_destroy(&cluster);
  return plan;
}

static void refuse_layout(const char *name, int produced, int present, const char *words) {
  tsr_plan *plan = split_plan(), *read;
  char *text = plan_text(plan, TSR_PLAN_JSON);
  json_t *document = json_loads(text, 0, NULL), *pair = json_pack("[i, i]", produced, present);
  json_t *layouts = json_object_get(json_object_get(document, "decision"), "layouts");
  json_array_set_new(layouts, plan_value(plan, name).id - 1, pair);
  plan_refused(parse_forged(document, &read), TSR_ERROR_FORMAT, words);
  json_decref(document);
  free(text);
  tsr_plan_destroy(&plan);
}

static void contradictions_are_named(void **state) {
  (void)state;
  int replicate = tsr_place_bit(TSR_PLACE_REPLICATE), sum = tsr_place_bit(TSR_PLACE_SUM);
  refuse_layout("w1", TSR_PLACE_REPLICATE, replicate | tsr_place_bit(0), "no collective turns");
  refuse_layout("w1", 1, tsr_place_bit(1) | tsr_place_bit(0), "no collective turns");
  refuse_layout("w1", 1, replicate, "no collective turns");
  refuse_layout("w1", 5, 255, "expected an integer in");
  refuse_layout("y", TSR_PLACE_SUM, sum | tsr_place_bit(TSR_PLACE_MAX), "no collective turns");
  refuse_layout("w1", TSR_PLACE_SUM, sum | replicate, "");
  refuse_layout("x", 0, tsr_place_bit(0), "");
}

static void unknown_keys_and_other_versions(void **state) {
  (void)state;
  tsr_plan *plan = split_plan(), *read;
  char *text = plan_text(plan, TSR_PLAN_JSON);
  json_t *document = json_loads(text, 0, NULL);
  json_object_set_new(document, "later", json_integer(1));
  json_object_set_new(json_object_get(document, "decision"), "later", json_array());
  json_object_set_new(json_object_get(document, "cluster"), "later", json_true());
  plan_ok(parse_forged(document, &read));
  tsr_plan_destroy(&read);
  json_object_set_new(document, "schema", json_string("tessera.plan/2"));
  plan_refused(parse_forged(document, &read), TSR_ERROR_MISMATCH, "tessera.plan/2");
  json_object_set_new(document, "schema", json_string("tessera.cluster/1"));
  plan_refused(parse_forged(document, &read), TSR_ERROR_MISMATCH, "tessera.cluster/1");
  json_object_set_new(document, "schema", json_string("tessera.plan/1"));
  json_object_set_new(json_object_get(document, "options"), "reserve_fraction", json_real(1));
  plan_refused(parse_forged(document, &read), TSR_ERROR_FORMAT, "reserve_fraction");
  json_decref(document);
  document = json_loads(text, 0, NULL);
  json_t *members = json_object_get(json_object_get(document, "cluster"), "members");
  json_object_set_new(json_array_get(members, 0), "memory_bytes", json_integer(100));
  plan_refused(parse_forged(document, &read), TSR_ERROR_FORMAT, "does not fit the memory");
  json_decref(document);
  free(text);
  tsr_plan_destroy(&plan);
}

/* --- clusters ---------------------------------------------------------------------------------------------
 */

static void clusters_come_back_and_damage_is_refused(void **state) {
  (void)state;
  plan_device devices[2] = {{.gflops = 3, .memory_gb = 1, .panel = 16}, {.gflops = 1.0 / 3, .memory_gb = 2}};
  tsr_cluster *cluster = plan_cluster(2, devices), *read = NULL;
  char *text = plan_cluster_text(cluster);
  plan_ok(tsr_cluster_parse(plan_context, text, strlen(text), &read, &plan_error));
  char *again = plan_cluster_text(read);
  assert_string_equal(text, again);
  free(again);
  tsr_cluster_destroy(&read);
  plan_seed(77);
  for (int i = 0; i < turns(1500); i++) {
    json_t *document = json_loads(text, 0, NULL);
    if (i == 0) json_object_set_new(document, "schema", json_string("tessera.cluster/2"));
    if (i > 0) damage(document);
    char *damaged = dump(document);
    tsr_status status = tsr_cluster_parse(plan_context, damaged, strlen(damaged), &read, &plan_error);
    if (i == 0) plan_refused(status, TSR_ERROR_MISMATCH, "tessera.cluster/2");
    if (status != TSR_OK) check_error(status);
    if (status == TSR_OK && i % 10 == 0) { /* what is read can be planned for */
      tsr_plan *plan = plan_make(plan_ffn(64, 48, 96, true, true), read, NULL);
      plan_check(plan);
      char *tables = plan_text(plan, TSR_PLAN_JSON);
      free(tables);
      tsr_plan_destroy(&plan);
    }
    tsr_cluster_destroy(&read);
    free(damaged);
    json_decref(document);
  }
  free(text);
  tsr_cluster_destroy(&cluster);
}

/* A document may tell the links of a host and of the network apart; members of a host are known by its name.
 */
static void links_are_told_apart(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(3, (plan_device){.gflops = 1, .memory_gb = 1}), *read = NULL;
  cluster->links.network = (tsr_link){3e-5, 1.25e8};
  cluster->links.reduce_bandwidth = 7e9;
  snprintf(cluster->members[1].host, sizeof cluster->members[1].host, "another");
  char *text = plan_cluster_text(cluster);
  plan_ok(tsr_cluster_parse(plan_context, text, strlen(text), &read, &plan_error));
  assert_true(read->links.host.latency == cluster->links.host.latency);
  assert_true(read->links.network.latency == 3e-5 && read->links.network.bandwidth == 1.25e8);
  assert_true(read->links.reduce_bandwidth == 7e9);
  assert_int_equal(read->hosts[0], 0);
  assert_int_equal(read->hosts[1], 1);
  assert_int_equal(read->hosts[2], 0);
  tsr_cluster_destroy(&read);

  json_t *document = json_loads(text, 0, NULL);
  json_object_del(document, "network");
  char *older = dump(document);
  plan_ok(tsr_cluster_parse(plan_context, older, strlen(older), &read, &plan_error));
  assert_true(read->links.network.bandwidth == cluster->links.host.bandwidth);
  json_decref(document);
  free(older);
  free(text);
  tsr_cluster_destroy(&read);
  tsr_cluster_destroy(&cluster);
}

/* --- arguments --------------------------------------------------------------------------------------------
 */

static void options_are_checked(void **state) {
  (void)state;
  tsr_cluster *cluster = plan_cluster_of(1, (plan_device){.gflops = 1, .memory_gb = 1});
  tsr_graph *graph = plan_gemm(4, 4, 4, false);
  tsr_plan *plan;
  tsr_plan_options options = {0};
  plan_refused(tsr_plan_create(graph, cluster, &options, &plan, &plan_error), TSR_ERROR_INVALID_ARGUMENT,
               "struct_size is 0");
  tsr_plan_options_init(&options);
  options.reserve_fraction = 1;
  plan_refused(tsr_plan_create(graph, cluster, &options, &plan, &plan_error), TSR_ERROR_INVALID_ARGUMENT,
               "reserve_fraction 1");
  options.reserve_fraction = NAN;
  plan_refused(tsr_plan_create(graph, cluster, &options, &plan, &plan_error), TSR_ERROR_INVALID_ARGUMENT,
               "reserve_fraction");
  options.reserve_fraction = 0;
  options.replicate = (tsr_replicate)9;
  plan_refused(tsr_plan_create(graph, cluster, &options, &plan, &plan_error), TSR_ERROR_INVALID_ARGUMENT,
               "replicate 9");
  assert_null(plan);
  tsr_plan_member member;
  tsr_layout layout;
  plan = plan_fit(graph, cluster, NULL);
  plan_refused(tsr_plan_get_member(plan, 1, &member, &plan_error), TSR_ERROR_INVALID_ARGUMENT, "member 1");
  plan_refused(tsr_plan_layout(plan, (tsr_value){99}, &layout, &plan_error), TSR_ERROR_INVALID_ARGUMENT,
               "value 99");
  tsr_plan_destroy(&plan);
  tsr_plan_destroy(&plan); /* of NULL */
  tsr_cluster_destroy(&cluster);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_come_back_as_they_went),
      cmocka_unit_test(a_refusal_comes_back),
      cmocka_unit_test(the_hash_follows_the_decision),
      cmocka_unit_test(damaged_plans_are_errors_or_sound),
      cmocka_unit_test(damaged_bytes_are_errors),
      cmocka_unit_test(contradictions_are_named),
      cmocka_unit_test(unknown_keys_and_other_versions),
      cmocka_unit_test(clusters_come_back_and_damage_is_refused),
      cmocka_unit_test(links_are_told_apart),
      cmocka_unit_test(options_are_checked),
  };
  return cmocka_run_group_tests_name("plan_json", tests, plan_setup, plan_teardown);
}
