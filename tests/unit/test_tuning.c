/* test_tuning.c: tuning rows on a device that is data only: levels, distances, what is passed over, damaged
 * files, writing, and the space of variants. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/tuning.h"

static const tsr_gemm_facts tile = {.family = TSR_GEMM_TILE,
                                    .tile_m = 64,
                                    .tile_n = 64,
                                    .tile_k = 16,
                                    .item_m = 4,
                                    .item_n = 4,
                                    .vector = 4,
                                    .buffers = 2,
                                    .split_k = 4};
static const tsr_gemm_facts mma = {.family = TSR_GEMM_MMA,
                                   .instruction = TSR_MMA_NVIDIA_MMA,
                                   .tile_m = 64,
                                   .tile_n = 64,
                                   .tile_k = 32,
                                   .warp_m = 32,
                                   .warp_n = 32,
                                   .stages = 2,
                                   .split_k = 8};
static const tsr_gemm_facts panel = {.family = TSR_GEMM_PANEL,
                                     .tile_m = 6,
                                     .tile_n = 16,
                                     .panel = 16,
                                     .vector = 8,
                                     .stored_k_block = 128,
                                     .stored_row_block = 24,
                                     .stored_panels = 8,
                                     .copied_k_block = 128,
                                     .copied_row_block = 24,
                                     .copied_panels = 8,
                                     .small_m = 16,
                                     .small_k_block = 128};
static const tsr_gemm_facts clblast = {.family = TSR_GEMM_CLBLAST, .tile_m = 32, .tile_n = 32};

static char folder[] = "/tmp/tessera-tuning-XXXXXX";
static char log_text[8192];
static tsr_kernel_source built_in[] = {{"rows.json", "", 0}, {NULL, NULL, 0}};
static tsr_context *context;
static tsr_device device;

static void keep_log(void *user, tsr_log_level level, const char *area, const char *message) {
  (void)user, (void)level, (void)area;
  snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), "%s\n", message);
}

static void offer(const tsr_device *base, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  const tsr_gemm_facts list[] = {tile, clblast, panel};
  const bool panels = base->gemm[types].family == TSR_GEMM_PANEL;
  *out = preference < (panels ? 3 : 2) ? list[preference] : (tsr_gemm_facts){.family = TSR_GEMM_NONE};
}

static const tsr_device_ops ops = {.gemm_offer = offer};

#define TILE_OF(m)                                                                                           \
  "\"variant\": {\"family\": \"tile\", \"tile_m\": " m ", \"tile_n\": 64, \"tile_k\": 16, "                  \
  "\"item_m\": 4, \"item_n\": 4, \"vector\": 4, \"buffers\": 2, \"split_k\": 4}"
#define ROW(match, form, m, n, k, variant)                                                                   \
  "{\"match\": {" match "}, \"types\": \"f32\", \"form\": \"" form "\", \"m\": " #m ", \"n\": " #n           \
  ", \"k\": " #k ", " variant                                                                                \
  ", \"provenance\": {\"gflops\": 10, \"driver\": \"1\", \"date\": \"2026-01-01\", "                         \
  "\"version\": \"0\"}}"
#define PANEL_OF(small_m)                                                                                    \
  "\"variant\": {\"family\": \"panel\", \"tile_m\": 6, \"tile_n\": 16, \"panel\": 16, \"vector\": 8, "       \
  "\"stored_k_block\": 128, \"stored_row_block\": 24, \"stored_panels\": 8, \"copied_k_block\": 128, "       \
  "\"copied_row_block\": 24, \"copied_panels\": 8, \"small_m\": " small_m ", \"small_k_block\": 128}"
#define DOCUMENT(rows) "{\"schema\": \"tessera.tuning/1\", \"rows\": [" rows "]}"
#define ANY ""
#define VENDOR "\"vendor\": \"Maker\""
#define ARCHITECTURE "\"vendor\": \"Maker\", \"architecture\": \"gfx9\""
#define DEVICE "\"device\": \"card 9\""
#define CLBLAST "\"variant\": {\"family\": \"clblast\", \"tile_m\": 32, \"tile_n\": 32}"

static void build_in(const char *document) {
  built_in[0].text = document;
  built_in[0].bytes = strlen(document);
}

static void path_of(char path[512], const char *name) {
  snprintf(path, 512, "%s/%s", folder, name);
}

static void write_file(const char *name, const char *text) {
  char path[512];
  path_of(path, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void remove_file(const char *name) {
  char path[512];
  path_of(path, name);
  unlink(path);
}

static const char *const all_files[] = {"a.json", "b.json", "c.json", "card_9.json"};

static int setup_all(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  return tsr_context_create(TSR_CONTEXT_OPTIONS(.log = keep_log, .log_level = TSR_LOG_WARNING,
                                                .cache_folder = "", .tuning_folder = folder),
                            &context, NULL);
}

static int teardown_all(void **state) {
  (void)state;
  tsr_context_destroy(&context);
  return rmdir(folder);
}

static int setup(void **state) {
  (void)state;
  log_text[0] = 0;
  build_in(DOCUMENT(""));
  device = (tsr_device){.ops = &ops, .context = context, .architecture = "gfx9", .work_group_size = 256};
  device.info = (tsr_device_info){.name = "card 9", .vendor = "Maker", .local_memory_bytes = 32 << 10};
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) device.gemm[types] = tile;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tsr_tuning_free(&device);
  for (size_t i = 0; i < sizeof all_files / sizeof *all_files; i++) remove_file(all_files[i]);
  return 0;
}

static void load(const char *family) {
  tsr_error error = {0};
  tsr_tuning_free(&device);
  for (int types = 0; types < TSR_GEMM_TYPES_COUNT; types++) device.gemm[types].tuning = 0;
  assert_int_equal(tsr_tuning_load(&device, family, built_in, &error), TSR_OK);
}

/* tile_m of the row for a product, 0 without one. */
static int found(int form, int64_t m, int64_t n, int64_t k) {
  const tsr_tuned *row = tsr_tuning_find(&device, TSR_GEMM_TYPES_F32, form, m, n, k);
  return row ? row->facts.tile_m : 0;
}

/* Of rows that are within a factor of 4, the most specific; but not one of quite another size. */
static void test_levels(void **state) {
  (void)state;
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 0);
  assert_int_equal(device.gemm[0].tuning, 0);
  write_file("a.json", DOCUMENT(ROW(ANY, "nn", 512, 512, 512, TILE_OF("16"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 16);
  write_file("b.json", DOCUMENT(ROW(VENDOR, "nn", 512, 512, 1024, TILE_OF("32"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 32);
  write_file("c.json", DOCUMENT(ROW(ARCHITECTURE, "nn", 512, 512, 1500, TILE_OF("48"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 48);
  assert_int_equal(found(0, 512, 512, 300), 32); /* beyond a factor of 4 from that of the architecture */
  write_file("b.json", DOCUMENT(ROW(DEVICE, "nn", 512, 512, 1600, TILE_OF("8"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 8);
  write_file("b.json", DOCUMENT(ROW(DEVICE, "nn", 9, 9, 9, TILE_OF("8"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 48);
  write_file("b.json", DOCUMENT(ROW("\"device\": \"card 8\"", "nn", 512, 512, 512, TILE_OF("8"))));
  load(NULL);
  assert_int_equal(found(0, 512, 512, 512), 48);
  /* Other types have no rows. */
  assert_null(tsr_tuning_find(&device, TSR_GEMM_TYPES_F64, 0, 512, 512, 512));
}

static void test_nearest(void **state) {
  (void)state;
  write_file("a.json", DOCUMENT(ROW(ANY, "nn", 1, 4096, 4096, TILE_OF("16")) "," ROW(
                           ANY, "nn", 512, 4096, 4096, TILE_OF("32")) "," ROW(ANY, "nt", 512, 512, 512,
                                                                              TILE_OF("48"))));
  write_file("b.json", DOCUMENT(ROW(ANY, "nn", 512, 4096, 4096, TILE_OF("8"))));
  load(NULL);
  assert_int_equal(found(0, 1, 4096, 4096), 16);
  assert_int_equal(found(0, 4, 4096, 4096), 16);
  assert_int_equal(found(0, 64, 4096, 4096), 32); /* of two that are as near, the first file's */
  assert_int_equal(found(0, 512, 512, 512), 32);  /* a nearer one has another form */
  assert_int_equal(found(2, 1, 4096, 4096), 48);  /* nt */
  assert_int_equal(found(1, 512, 512, 600), 48);  /* tn: no row, the nearest of any form */
}

static void test_passed_over(void **state) {
  (void)state;
  /* Kernels the backend does not have; one beyond local memory, or a work-group. */
  write_file(
      "a.json",
      DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, "\"variant\": {\"family\": \"reference\", \"tile_m\": 4}") "," ROW(
          DEVICE, "nn", 8, 8, 8,
          "\"variant\": {\"family\": \"mma\", \"tile_m\": 64}") "," ROW(DEVICE, "nn", 8, 8, 8,
                                                                        TILE_OF("2048")) "," ROW(ANY, "nn", 9,
                                                                                                 9, 9,
                                                                                                 TILE_OF(
                                                                                                     "32"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 32);
  device.gemm[0] = panel;
  write_file("c.json", DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, PANEL_OF("64"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 6);
  write_file("c.json", DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, PANEL_OF("1000000"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 0);
  remove_file("c.json");
  device.gemm[0] = tile;
  device.gemm[0].panel = 16; /* weights are stored in panels here */
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 0);
  device.gemm[0].panel = 0;
  load("clblast"); /* forced: rows of another family do not count */
  assert_int_equal(found(0, 8, 8, 8), 0);
  write_file("a.json", DOCUMENT(ROW(ANY, "nn", 8, 8, 8, CLBLAST)));
  load("clblast");
  assert_int_equal(found(0, 8, 8, 8), 32);
  write_file("a.json",
             DOCUMENT(ROW(ANY, "nn", 8, 8, 4096, TILE_OF("16")) "," ROW(ANY, "nn", 900, 8, 4096, CLBLAST)));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 4096), 16);
  /* A variant that was refused is not asked for again, and no other takes its place. */
  tsr_tuning_find(&device, 0, 0, 8, 8, 4096)->refused = true;
  assert_int_equal(found(0, 8, 8, 4096), 0);
  /* Nor are rows when somebody has put another default there. */
  device.gemm[0].tuning = 0;
  assert_int_equal(found(0, 900, 8, 4096), 0);
}

/* A row of the user goes over those that are built in where it is as near and as specific; else they stay. */
static void test_built_in(void **state) {
  (void)state;
  build_in(DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, TILE_OF("16")) "," ROW(ANY, "nn", 8, 8, 8, TILE_OF("8"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  int32_t without = device.gemm[0].tuning;
  write_file("a.json", DOCUMENT(ROW(DEVICE, "nn", 999, 8, 8, TILE_OF("48"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_int_equal(found(0, 900, 8, 8), 48);
  assert_int_not_equal(device.gemm[0].tuning, without);
  write_file("a.json", DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, TILE_OF("48"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 48);
  write_file("a.json", DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("32"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  /* One that this device cannot use is none. */
  write_file("a.json", DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, TILE_OF("2048"))));
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_int_equal(device.gemm[0].tuning, without);
  build_in("{");
  load(NULL);
  assert_non_null(strstr(log_text, "rows.json"));
}

static int32_t fingerprint_of(const char *a, const char *b) {
  write_file("a.json", a);
  write_file("b.json", b);
  load(NULL);
  return device.gemm[0].tuning;
}

static void test_fingerprint(void **state) {
  (void)state;
  const int32_t first = fingerprint_of(DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("32"))), DOCUMENT(""));
  assert_int_not_equal(first, 0);
  assert_int_equal(device.gemm[TSR_GEMM_TYPES_F64].tuning, 0);
  char text[TSR_VARIANT_BYTES];
  tsr_gemm_facts again;
  tsr_gemm_facts_format(&device.gemm[0], text, sizeof text);
  assert_int_equal(tsr_gemm_facts_parse(text, &again, NULL), TSR_OK);
  assert_true(tsr_gemm_facts_equal(&again, &device.gemm[0], 1));
  /* Not in force here. */
  assert_int_equal(fingerprint_of(DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("32"))),
                                  DOCUMENT(ROW("\"device\": \"another\"", "nn", 8, 8, 8, TILE_OF("16")))),
                   first);
  /* Another variant, shape, form or level. */
  static const char *const others[] = {
      DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("16"))), DOCUMENT(ROW(ANY, "nn", 8, 9, 8, TILE_OF("32"))),
      DOCUMENT(ROW(ANY, "nt", 8, 8, 8, TILE_OF("32"))), DOCUMENT(ROW(DEVICE, "nn", 8, 8, 8, TILE_OF("32")))};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_int_not_equal(fingerprint_of(others[i], DOCUMENT("")), first);
}

static void expect_warning(const char *text, const char *file, const char *place) {
  log_text[0] = 0;
  write_file("a.json", text);
  write_file("b.json", DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("16"))));
  load(NULL);
  if (!strstr(log_text, file) || !strstr(log_text, place))
    fail_msg("\"%s\" and \"%s\" are not both in: %s", file, place, log_text);
  assert_ptr_equal(strchr(log_text, '\n'), log_text + strlen(log_text) - 1); /* one line */
  assert_int_equal(found(0, 8, 8, 8), 16);                                   /* the others count */
  assert_int_equal(found(0, 1, 1, 1), 16); /* and nothing of the damaged file */
}

static void test_damaged(void **state) {
  (void)state;
  const char *good = ROW(ANY, "nn", 1, 1, 1, TILE_OF("32"));
  char text[4096];
  expect_warning(" ", "a.json", "line 1");
  expect_warning("{\"schema\": \"tessera.tuning/1\",\n \"rows\": [}", "a.json", "line 2");
  expect_warning("{\"rows\": []}", "a.json", "schema");
  expect_warning("{\"schema\": \"tessera.tuning/2\", \"rows\": []}", "a.json", "tessera.tuning/2");
  expect_warning("{\"schema\": \"tessera.tuning/1\"}", "a.json", "rows");
  expect_warning(DOCUMENT("7"), "a.json", "rows[0]");
  static const char *const changes[][3] = {
      {"\"m\": 1,", "\"m\": 0,", "rows[1]"},
      {"\"m\": 1,", "\"m\": \"x\",", "rows[1]"},
      {"\"f32\"", "\"f33\"", "f33"},
      {"\"nn\"", "\"xn\"", "xn"},
      {"\"tile\"", "\"tail\"", "tail"},
      {"\"tile_k\"", "\"tile_q\"", "rows[1].variant.tile_q"},
      {"\"split_k\"", "\"warp_m\"", "rows[1].variant.warp_m: family tile has no such parameter"},
      {"\"buffers\"", "\"panel\"", "rows[1].variant.panel: family tile has no such parameter"},
      {"\"split_k\"", "\"tuning\"", "rows[1].variant.tuning"},
      {"\"tile_m\": 32", "\"tile_m\": -1", "rows[1].variant"},
      {"\"gflops\": 10", "\"gflops\": -1", "rows[1].provenance"},
      {"\"match\"", "\"mitch\"", "rows[1]"},
  };
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const char *at = strstr(good, changes[i][0]);
    assert_non_null(at);
    snprintf(text, sizeof text, DOCUMENT("%s, %.*s%s%s"), good, (int)(at - good), good, changes[i][1],
             at + strlen(changes[i][0]));
    expect_warning(text, "a.json", changes[i][2]);
  }
}

/* A pipe would wait for a writer for ever, and a folder has no text. An empty file has no rows. */
static void test_no_files(void **state) {
  (void)state;
  char path[512];
  path_of(path, "a.json");
  alarm(60);
  assert_int_equal(mkfifo(path, 0600), 0);
  write_file("b.json", DOCUMENT(ROW(ANY, "nn", 8, 8, 8, TILE_OF("16"))));
  load(NULL);
  alarm(0);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_non_null(strstr(log_text, "a.json: it is not a regular file"));
  remove_file("a.json");
  assert_int_equal(mkdir(path, 0700), 0);
  log_text[0] = 0;
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_non_null(strstr(log_text, "a.json: it is not a regular file"));
  rmdir(path);
  log_text[0] = 0;
  write_file("a.json", "");
  load(NULL);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_string_equal(log_text, "");
}

static tsr_tuning_row row_of(int64_t m, const char *variant, double gflops) {
  tsr_tuning_row row = {.gflops = gflops};
  tsr_tuning_identify(&device, &row);
  row.product = (tsr_tuning_product){.types = "f32", .form = "nn", .m = m, .n = 8, .k = 8};
  snprintf(row.variant, sizeof row.variant, "%s", variant);
  return row;
}

static void save(const tsr_tuning_row *row) {
  tsr_error error = {0};
  if (tsr_tuning_save(context, NULL, row, 1, &error) != TSR_OK) fail_msg("%s", error.message);
}

static void test_save(void **state) {
  (void)state;
  tsr_error error = {0};
  char other[TSR_VARIANT_BYTES], path[512];
  tsr_gemm_facts facts = tile;
  facts.tile_m = 32;
  tsr_gemm_facts_format(&facts, other, sizeof other);
  tsr_tuning_row first = row_of(8, other, 1), second = row_of(900, "clblast tile_m=32 tile_n=32", 2);
  save(&first);
  save(&second);
  load(NULL);
  assert_int_equal(device.tuning->rows.count, 2);
  assert_int_equal(found(0, 8, 8, 8), 32);
  facts.tile_m = 16;
  tsr_gemm_facts_format(&facts, first.variant, sizeof first.variant);
  save(&first); /* in the first one's place */
  load(NULL);
  assert_int_equal(device.tuning->rows.count, 2);
  assert_int_equal(found(0, 8, 8, 8), 16);
  assert_true(device.tuning->rows.items[1].row.gflops == 2);
  /* What is there and damaged is not thrown away. */
  write_file("card_9.json", "{");
  assert_int_equal(tsr_tuning_save(context, NULL, &first, 1, &error), TSR_ERROR_FORMAT);
  path_of(path, "card_9.json");
  struct stat facts_of_file;
  assert_int_equal(stat(path, &facts_of_file), 0);
  assert_int_equal(facts_of_file.st_size, 1);
  assert_int_equal(tsr_tuning_save(context, NULL, NULL, 0, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(tsr_tuning_save(context, "/nowhere/x.json", &second, 1, &error), TSR_ERROR_IO);
  assert_non_null(strstr(error.message, "/nowhere/x.json"));
}

static void expect_refused(const tsr_tuning_row *row, const char *part) {
  tsr_error error = {0};
  char path[512];
  path_of(path, "c.json");
  assert_int_equal(tsr_tuning_save(context, path, row, 1, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_int_equal(error.status, TSR_ERROR_INVALID_ARGUMENT);
  if (!strstr(error.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, error.message);
  assert_int_not_equal(access(path, F_OK), 0);
}

/* What a reader would refuse is not written. */
static void test_save_refuses(void **state) {
  (void)state;
  const tsr_tuning_row good = row_of(8, "clblast tile_m=32 tile_n=32", 1);
  tsr_tuning_row row = good;
  row.gflops = -1;
  expect_refused(&row, "gflops: -1 is below 0");
  row.gflops = NAN;
  expect_refused(&row, "gflops is");
  row.gflops = HUGE_VAL;
  expect_refused(&row, "gflops is inf");
  static const char *const variants[] = {"", "none", "tile tile_q=1", "clblast tile_m=32 panel=16"};
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    row = good;
    snprintf(row.variant, sizeof row.variant, "%s", variants[i]);
    expect_refused(&row, "tuning row 0");
  }
  row = good, row.product.types[0] = 0;
  expect_refused(&row, "types \"\"");
  row = good, row.product.form[0] = 0;
  expect_refused(&row, "form \"\"");
  row = good, row.product.k = 0;
  expect_refused(&row, "k: 0 is not in [1,");
  row = good, row.device[0] = '\xff';
  expect_refused(&row, "UTF-8");
  row = good, memset(row.vendor, 'x', sizeof row.vendor);
  expect_refused(&row, "vendor does not end within its 64 bytes");
  row = good, memset(row.version, 'x', sizeof row.version);
  expect_refused(&row, "version does not end within its 16 bytes");
}

/* Not the current folder, which nobody has named. */
static void test_save_without_folder(void **state) {
  (void)state;
  tsr_context *none = NULL;
  tsr_error error = {0};
  const tsr_tuning_row row = row_of(8, "clblast tile_m=32 tile_n=32", 1);
  assert_int_equal(
      tsr_context_create(TSR_CONTEXT_OPTIONS(.cache_folder = "", .tuning_folder = ""), &none, NULL), TSR_OK);
  assert_int_equal(tsr_tuning_save(none, NULL, &row, 1, &error), TSR_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "no tuning folder"));
  assert_int_equal(tsr_tuning_save_check(none, NULL, &row, &error), TSR_ERROR_INVALID_ARGUMENT);
  tsr_context_destroy(&none);
}

/* What is asked before a search is what would come of it after. */
static void test_save_check(void **state) {
  (void)state;
  tsr_error error = {0};
  char path[512], link_path[512];
  struct stat facts;
  const tsr_tuning_row row = row_of(8, "clblast tile_m=32 tile_n=32", 1);
  assert_int_equal(tsr_tuning_save_check(context, NULL, &row, &error), TSR_OK);
  path_of(path, "card_9.json");
  assert_int_not_equal(access(path, F_OK), 0);
  write_file("card_9.json", "{");
  assert_int_equal(tsr_tuning_save_check(context, NULL, &row, &error), TSR_ERROR_FORMAT);
  write_file("card_9.json", "");
  assert_int_equal(tsr_tuning_save_check(context, NULL, &row, &error), TSR_OK);
  assert_int_equal(tsr_tuning_save_check(context, "/nowhere/x.json", &row, &error), TSR_ERROR_IO);
  assert_non_null(strstr(error.message, "cannot write '/nowhere/x.json'"));
  assert_int_equal(tsr_tuning_save_check(context, folder, &row, &error), TSR_ERROR_IO);
  assert_int_equal(tsr_tuning_save(context, folder, &row, 1, &error), TSR_ERROR_IO);
  assert_int_equal(tsr_tuning_save_check(context, "/dev/null", &row, &error), TSR_OK);
  assert_int_equal(tsr_tuning_save(context, "/dev/null", &row, 1, &error), TSR_OK);
  /* A link stays one; what it leads to, empty so far, has the row. */
  path_of(link_path, "b.json");
  assert_int_equal(symlink("card_9.json", link_path), 0);
  assert_int_equal(tsr_tuning_save_check(context, link_path, &row, &error), TSR_OK);
  assert_int_equal(tsr_tuning_save(context, link_path, &row, 1, &error), TSR_OK);
  assert_int_equal(lstat(link_path, &facts), 0);
  assert_true(S_ISLNK(facts.st_mode));
  assert_int_equal(stat(path, &facts), 0);
  assert_true(facts.st_size > 100);
}

typedef struct text {
  char data[4096];
} text;

static int append(void *user, const char *part, size_t bytes) {
  text *t = user;
  snprintf(t->data + strlen(t->data), sizeof t->data - strlen(t->data), "%.*s", (int)bytes, part);
  return 0;
}

static int refuse(void *user, const char *part, size_t bytes) {
  (void)user, (void)part, (void)bytes;
  return 1;
}

static void test_explain(void **state) {
  (void)state;
  text t = {{0}};
  tsr_tuning_product product = {.types = "f32", .form = "nn", .m = 16, .n = 8, .k = 8};
  load(NULL);
  assert_int_equal(tsr_tuning_explain(&device, &product, TSR_TUNING_TEXT, append, &t, NULL), TSR_OK);
  assert_non_null(strstr(t.data, "there is no row"));
  assert_non_null(strstr(t.data, "tile tile_m=64"));
  write_file("a.json", DOCUMENT(ROW(VENDOR, "nn", 8, 8, 8, TILE_OF("16")) "," ROW(DEVICE, "nn", 7, 8, 8,
                                                                                  TILE_OF("2048"))));
  load(NULL);
  t.data[0] = 0;
  assert_int_equal(tsr_tuning_explain(&device, &product, TSR_TUNING_TEXT, append, &t, NULL), TSR_OK);
  static const char *const parts[] = {"card 9: 0 of the user, 0 built in\n",
                                      "gfx9: 0 of the user, 0 built in\n",
                                      "Maker: 1 of the user, 0 built in\n",
                                      "passed over   nn, m = 7, n = 8, k = 8, from ",
                                      ": tile_m is 2048, expected 1 to 1024\n",
                                      "at distance 0.69, for Maker, of the user",
                                      "a.json",
                                      "10.0 GFLOPS",
                                      "2026-01-01",
                                      "tile tile_m=16 "};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!strstr(t.data, parts[i])) fail_msg("\"%s\" is not in:\n%s", parts[i], t.data);
  assert_null(strstr(t.data, "tuning="));
  remove_file("a.json");
  build_in(DOCUMENT(ROW(ARCHITECTURE, "nn", 8, 8, 8, TILE_OF("16"))));
  load(NULL);
  t.data[0] = 0;
  assert_int_equal(tsr_tuning_explain(&device, &product, TSR_TUNING_TEXT, append, &t, NULL), TSR_OK);
  assert_non_null(strstr(t.data, "gfx9: 0 of the user, 1 built in\n"));
  assert_non_null(strstr(t.data, "for gfx9, built in"));
  assert_int_equal(tsr_tuning_explain(&device, &product, TSR_TUNING_TEXT, refuse, NULL, NULL), TSR_ERROR_IO);
  product.m = 0;
  assert_int_equal(tsr_tuning_explain(&device, &product, TSR_TUNING_TEXT, append, &t, NULL),
                   TSR_ERROR_INVALID_ARGUMENT);
}

static json_t *explain_json(const tsr_tuning_product *product) {
  text t = {{0}};
  json_error_t wrong;
  load(NULL);
  assert_int_equal(tsr_tuning_explain(&device, product, TSR_TUNING_JSON, append, &t, NULL), TSR_OK);
  json_t *document = json_loads(t.data, 0, &wrong);
  if (!document) fail_msg("line %d: %s\n%s", wrong.line, wrong.text, t.data);
  assert_string_equal(json_string_value(json_object_get(document, "schema")), "tessera.explain/1");
  assert_non_null(strstr(json_string_value(json_object_get(document, "variant")), "tile tile_m="));
  return document;
}

static void test_explain_json(void **state) {
  (void)state;
  const tsr_tuning_product product = {.types = "f32", .form = "nn", .m = 16, .n = 8, .k = 8};
  json_t *document = explain_json(&product);
  assert_true(json_is_null(json_object_get(document, "row")));
  assert_string_equal(json_string_value(json_object_get(document, "why")), "there is no row for it");
  json_decref(document);
  write_file("a.json", DOCUMENT(ROW(VENDOR, "nn", 8, 8, 8, TILE_OF("16")) "," ROW(DEVICE, "nn", 7, 8, 8,
                                                                                  TILE_OF("2048"))));
  document = explain_json(&product);
  const json_t *row = json_object_get(document, "row"), *passed = json_object_get(document, "passed_over");
  assert_int_equal(json_integer_value(json_object_get(row, "m")), 8);
  assert_string_equal(json_string_value(json_object_get(row, "level")), "vendor");
  assert_true(json_is_true(json_object_get(row, "user")));
  assert_int_equal(json_array_size(passed), 1);
  assert_non_null(
      strstr(json_string_value(json_object_get(json_array_get(passed, 0), "why")), "tile_m is 2048"));
  assert_int_equal(json_array_size(json_object_get(document, "levels")), TSR_TUNING_LEVELS);
  json_decref(document);
}

/* A refusal says which value, and what it may be. */
static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const tsr_gemm_facts *facts;
    const char *change, *why;
  } rows[] = {
      {&panel, "stored_k_block=100", "stored_k_block is 100, expected a multiple of panel, 16"},
      {&panel, "copied_row_block=25", "copied_row_block is 25, expected a multiple of tile_m, 6"},
      {&panel, "tile_n=999", "tile_n is 999, expected that of panel, 16"},
      {&panel, "vector=3", "vector is 3, expected 1, 2, 4, 8 or 16"},
      {&panel, "warp_m=16", "warp_m is 16, but family panel has no such parameter"},
      {&panel, "stored_row_block=6000", "blocks of stored_row_block x stored_k_block take 3456000 bytes"},
      {&tile, "item_m=3", "tile_m is 64, expected a multiple of item_m, 3"},
      {&tile, "split_k=65", "split_k is 65, expected 0 to 64"},
      {&tile, "sub_group=7", "sub_group is 7, expected 0, 8, 16, 32 or 64"},
      {&tile, "panel=16", "panel is 16, but family tile has no such parameter"},
      {&mma, "warp_m=8", "warp_m is 8, expected a multiple of the instruction's rows, 16"},
      {&mma, "stages=9", "stages is 9, expected 2 to 8"},
      {&clblast, "stages=2", "stages is 2, but family clblast has no such parameter"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[TSR_VARIANT_BYTES], changed[TSR_VARIANT_BYTES + 64];
    tsr_error error = {0};
    tsr_gemm_facts facts;
    snprintf(changed, sizeof changed, "%s %s", tsr_gemm_facts_format(rows[i].facts, text, sizeof text),
             rows[i].change);
    assert_int_equal(tsr_gemm_facts_parse(changed, &facts, &error), TSR_OK);
    assert_int_equal(tsr_tuning_check(&device, 0, &facts, &error), TSR_ERROR_UNSUPPORTED);
    if (!strstr(error.message, rows[i].why)) fail_msg("\"%s\" is not in \"%s\"", rows[i].why, error.message);
  }
}

/* Each parameter alone, beyond what arrays, loops and divisions can take: refused, not passed on. */
static void test_limits(void **state) {
  (void)state;
  static const struct {
    const tsr_gemm_facts *facts;
    const char *changes;
  } rows[] = {
      {&panel,
       "small_m=65 small_m=1000000 small_k_block=0 small_k_block=1048576 small_fetch=1048576 vector=0 "
       "vector=3 vector=32 panel=0 panel=1024 tile_m=0 tile_m=66 stored_k_block=0 stored_k_block=1048576 "
       "stored_row_block=1048572 stored_panels=0 copied_k_block=0 copied_row_block=0 copied_panels=0 "
       "copied_panels=1048576 prefetch=2"},
      {&tile, "tile_m=0 tile_n=0 tile_k=0 tile_m=1048576 tile_k=1048576 item_m=0 item_n=0 item_m=3 vector=0 "
              "vector=3 buffers=0 buffers=3 split_k=65 sub_group=7 sub_group=48 panel=16"},
      {&mma,
       "instruction=0 instruction=7 instruction=1048576 tile_m=0 tile_n=0 tile_k=0 tile_m=1048576 warp_m=0 "
       "warp_n=0 warp_m=8 stages=0 stages=1 stages=9 split_k=65 emulated=2 panel=16"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[TSR_VARIANT_BYTES], changes[1024], *rest = NULL;
    tsr_error error = {0};
    tsr_gemm_facts facts = *rows[i].facts;
    if (tsr_tuning_check(&device, 0, &facts, &error) != TSR_OK) fail_msg("%s", error.message);
    tsr_gemm_facts_format(&facts, text, sizeof text);
    snprintf(changes, sizeof changes, "%s", rows[i].changes);
    for (char *change = strtok_r(changes, " ", &rest); change; change = strtok_r(NULL, " ", &rest)) {
      char changed[TSR_VARIANT_BYTES + 64];
      snprintf(changed, sizeof changed, "%s %s", text, change); /* the last word counts */
      assert_int_equal(tsr_gemm_facts_parse(changed, &facts, &error), TSR_OK);
      if (tsr_tuning_check(&device, 0, &facts, &error) != TSR_ERROR_UNSUPPORTED)
        fail_msg("accepted: %s", changed);
    }
  }
}

/* Of those that save at once, none's rows are lost. */
static void test_save_at_once(void **state) {
  (void)state;
  enum { WRITERS = 6, EACH = 12 };
  char text[TSR_VARIANT_BYTES];
  tsr_gemm_facts_format(&clblast, text, sizeof text);
  for (int writer = 0; writer < WRITERS; writer++) {
    pid_t child = fork();
    assert_true(child >= 0);
    for (int i = 0; !child && i < EACH; i++) {
      tsr_tuning_row row = row_of(1 + writer * EACH + i, text, 1);
      if (tsr_tuning_save(context, NULL, &row, 1, NULL) != TSR_OK) _exit(1);
    }
    if (!child) _exit(0);
  }
  for (int writer = 0; writer < WRITERS; writer++) {
    int code = -1;
    assert_true(wait(&code) > 0);
    assert_int_equal(code, 0);
  }
  load(NULL);
  assert_int_equal(device.tuning->rows.count, WRITERS * EACH);
}

/* Every value of every parameter, from every start: each variant differs, and keeps the limits. */
static void test_space(void **state) {
  (void)state;
  tsr_tuning_space *space = NULL;
  tsr_error error = {0};
  tsr_tuning_product product = {.types = "f32", .form = "nn", .m = 16, .n = 8, .k = 8};
  char out[TSR_VARIANT_BYTES];
  int good = 0, refused = 0;
  load(NULL);
  assert_int_equal(tsr_tuning_space_create(&device, &product, NULL, &space, &error), TSR_OK);
  const char *start = tsr_tuning_space_start(space, 0);
  assert_non_null(strstr(start, "tile tile_m=64 "));
  assert_string_equal(tsr_tuning_space_start(space, 1), "clblast tile_m=32 tile_n=32");
  assert_null(tsr_tuning_space_start(space, 2));
  for (size_t axis = 0;; axis++) {
    tsr_status status = TSR_OK;
    size_t value = 0;
    for (;; value++) {
      status = tsr_tuning_space_step(space, start, axis, value, out, &error);
      if (status == TSR_ERROR_NOT_FOUND) break;
      tsr_gemm_facts facts;
      assert_int_equal(tsr_gemm_facts_parse(out, &facts, NULL), TSR_OK);
      bool fits = tsr_gemm_tile_local_bytes(&facts, TSR_GEMM_TYPES_F32) <= 32 << 10 &&
                  facts.tile_m / facts.item_m * (facts.tile_n / facts.item_n) <= 256;
      if (status == TSR_OK) assert_true(fits);
      if (status != TSR_OK) assert_int_equal(status, TSR_ERROR_UNSUPPORTED);
      good += status == TSR_OK;
      refused += status != TSR_OK;
    }
    if (!value) break;
  }
  assert_true(good > 10);
  assert_true(refused > 3);
  assert_int_equal(tsr_tuning_space_step(space, "clblast", 0, 0, out, &error), TSR_ERROR_NOT_FOUND);
  assert_int_equal(tsr_tuning_space_step(space, "nonsense", 0, 0, out, &error), TSR_ERROR_INVALID_ARGUMENT);
  tsr_tuning_space_destroy(&space);
  assert_null(space);
  /* A search begins with the row in force, if there is one. */
  write_file("a.json", DOCUMENT(ROW(ANY, "nn", 16, 8, 8, TILE_OF("32"))));
  load(NULL);
  assert_int_equal(tsr_tuning_space_create(&device, &product, NULL, &space, &error), TSR_OK);
  assert_non_null(strstr(tsr_tuning_space_start(space, 0), "tile tile_m=32 "));
  assert_non_null(strstr(tsr_tuning_space_start(space, 1), "tile tile_m=64 "));
  assert_string_equal(tsr_tuning_space_start(space, 2), "clblast tile_m=32 tile_n=32");
  tsr_tuning_space_destroy(&space);
  tsr_tuning_space_destroy(&space);
  device.gemm[TSR_GEMM_TYPES_F64].family = TSR_GEMM_NONE;
  snprintf(product.types, sizeof product.types, "f64");
  assert_int_equal(tsr_tuning_space_create(&device, &product, NULL, &space, &error), TSR_ERROR_UNSUPPORTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
      cmocka_unit_test_setup_teardown(test_nearest, setup, teardown),
      cmocka_unit_test_setup_teardown(test_passed_over, setup, teardown),
      cmocka_unit_test_setup_teardown(test_built_in, setup, teardown),
      cmocka_unit_test_setup_teardown(test_fingerprint, setup, teardown),
      cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_files, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save_refuses, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save_without_folder, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save_check, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(test_explain, setup, teardown),
      cmocka_unit_test_setup_teardown(test_explain_json, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
      cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_space, setup, teardown),
  };
  return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
