/* tuning_space.c: the variants that a search may try: for each family its parameters and their values, within
 * the limits of tuning_limits.c. One that a kernel refuses nevertheless costs the search one compilation. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "device/tuning.h"

enum { VALUES_MAX = 12, STARTS_MAX = 8 };

/* For which products a parameter counts: where operands are read as they are stored, or copied; those of few
 * rows, for which a kernel of its own has others. */
typedef enum relevance { ALWAYS, AS_STORED, COPIED, FEW_ROWS, ONE_ROW, RELEVANCES } relevance;

typedef struct axis {
  const char *name; /* as in TSR_GEMM_PARAMETER_LIST */
  size_t offset;
  relevance relevance;
  int count;
  int32_t values[VALUES_MAX];
} axis;

#define AXIS(field, when, ...)                                                                               \
  {                                                                                                          \
#field, offsetof(tsr_gemm_facts, field), when, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), {     \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
  }

/* ---- panel: cl_kernels/gemm_panel.cl ---- */

static const axis panel_axes[] = {
    AXIS(stored_k_block, AS_STORED, 128, 192, 256, 384, 512, 768, 1024, 2048),
    AXIS(stored_row_block, AS_STORED, 0, 48, 72, 96, 144, 192, 288),
    AXIS(stored_panels, AS_STORED, 1, 2, 4, 8, 16, 32, 64, 128),
    AXIS(copied_k_block, COPIED, 128, 192, 256, 384, 512),
    AXIS(copied_row_block, COPIED, 48, 96, 144, 192, 240, 288),
    AXIS(copied_panels, COPIED, 8, 16, 32, 64, 128),
    AXIS(tile_m, ALWAYS, 4, 5, 6, 7, 8, 12),
    AXIS(small_k_block, FEW_ROWS, 32, 64, 128, 256, 512),
    AXIS(small_fetch, FEW_ROWS, 0, 1024, 2048, 3072, 4096, 6144),
    AXIS(small_m, FEW_ROWS, 0, 1, 2, 4, 8, 16, 32),
    AXIS(small_fetch_row, ONE_ROW, 0, 1024, 2048, 3072, 4096, 6144),
};

/* Only where weights may take another form: the others follow from the panel. */
static const axis panel_width_axes[] = {AXIS(panel, ALWAYS, 8, 16, 24, 32, 48, 64)};

static int32_t down_to_multiple(int32_t value, int32_t of) {
  int32_t whole = of > 0 ? value / of * of : value;
  return value && !whole ? of : whole;
}

/* Blocks follow the tile, to the multiple below. */
static void panel_follow(tsr_gemm_facts *f) {
  f->tile_n = f->panel;
  f->stored_row_block = down_to_multiple(f->stored_row_block, f->tile_m);
  f->copied_row_block = down_to_multiple(f->copied_row_block, f->tile_m);
  f->stored_k_block = down_to_multiple(f->stored_k_block, f->panel);
  f->copied_k_block = down_to_multiple(f->copied_k_block, f->panel);
}

/* ---- tile: cl_kernels/gemm_tile.cl ---- */

static const axis tile_axes[] = {
    AXIS(tile_m, ALWAYS, 16, 32, 64, 96, 128),
    AXIS(tile_n, ALWAYS, 16, 32, 64, 96, 128),
    AXIS(item_m, ALWAYS, 1, 2, 4, 8),
    AXIS(item_n, ALWAYS, 1, 2, 4, 8),
    AXIS(tile_k, ALWAYS, 8, 16, 32),
    AXIS(vector, ALWAYS, 1, 2, 4),
    AXIS(buffers, ALWAYS, 1, 2),
    AXIS(split_k, ALWAYS, 1, 4, 16),
};

/* ---- mma: cl_kernels/gemm_mma.cl ---- */

static const axis mma_axes[] = {
    AXIS(tile_m, ALWAYS, 32, 64, 128, 256), AXIS(tile_n, ALWAYS, 32, 64, 128, 256),
    AXIS(warp_m, ALWAYS, 16, 32, 64, 128),  AXIS(warp_n, ALWAYS, 16, 32, 64, 128),
    AXIS(tile_k, ALWAYS, 16, 32, 64),       AXIS(stages, ALWAYS, 2, 3, 4),
    AXIS(split_k, ALWAYS, 1, 4, 16),
};

/* ---- families ---- */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A family that is not here, such as clblast, has no parameter to search. */
static const struct {
  const axis *axes;
  size_t axis_count;
  const axis *width_axes;
  size_t width_count;
  void (*follow)(tsr_gemm_facts *facts);
} families[TSR_GEMM_FAMILY_COUNT] = {
    [TSR_GEMM_PANEL] = {panel_axes, COUNT(panel_axes), panel_width_axes, COUNT(panel_width_axes),
                        panel_follow},
    [TSR_GEMM_TILE] = {tile_axes, COUNT(tile_axes), NULL, 0, NULL},
    [TSR_GEMM_MMA] = {mma_axes, COUNT(mma_axes), NULL, 0, NULL},
};

/* The backend's list, or the device's one variant. */
static void offer(const tsr_device *device, tsr_gemm_types types, int preference, tsr_gemm_facts *out) {
  *out = (tsr_gemm_facts){.family = TSR_GEMM_NONE};
  if (device->ops->gemm_offer)
    device->ops->gemm_offer(device, types, preference, out);
  else if (!preference)
    *out = device->gemm[types];
}

static bool is_searched(const tsr_gemm_facts *facts, size_t offset) {
  for (size_t i = 0; i < families[facts->family].axis_count; i++)
    if (families[facts->family].axes[i].offset == offset) return true;
  return false;
}

/* tile_n follows the panel, where there is one. */
static bool same_fixed(const tsr_gemm_facts *a, const tsr_gemm_facts *b) {
  tsr_gemm_facts x = *a, y = *b;
  if (x.family != y.family) return false;
  for (int i = 0; i < tsr_gemm_parameter_count(); i++) {
    int32_t *value = tsr_gemm_parameter(&x, i);
    if (value != &x.tuning && !is_searched(a, (size_t)((char *)value - (char *)&x)) &&
        *value != *tsr_gemm_parameter(&y, i))
      return false;
  }
  return true;
}

bool tsr_tuning_offered(const tsr_device *device, tsr_gemm_types types, const tsr_gemm_facts *facts) {
  tsr_gemm_facts own;
  for (int preference = 0;; preference++) {
    offer(device, types, preference, &own);
    if (own.family == TSR_GEMM_NONE) return false;
    if (same_fixed(facts, &own)) return true;
  }
}

/* ---- the space ---- */

struct tsr_tuning_space {
  const tsr_device *device;
  tsr_gemm_types types;
  bool any_panel;
  bool relevant[RELEVANCES];
  size_t start_count;
  tsr_gemm_facts start_facts[STARTS_MAX];
  char starts[STARTS_MAX][TSR_VARIANT_BYTES];
};

void tsr_tuning_space_options_init(tsr_tuning_space_options *options) {
  *options = (tsr_tuning_space_options){.struct_size = sizeof *options};
}

static void add_start(tsr_tuning_space *space, tsr_gemm_facts facts) {
  if (space->start_count == STARTS_MAX) return;
  facts.tuning = 0;
  char *text = tsr_gemm_facts_format(&facts, space->starts[space->start_count], TSR_VARIANT_BYTES);
  for (size_t i = 0; i < space->start_count; i++)
    if (!strcmp(space->starts[i], text)) return;
  space->start_facts[space->start_count++] = facts;
}

/* What runs now, first. The reference is there to be right. */
static void add_starts(tsr_tuning_space *space, const tsr_tuning_product *product, int form) {
  const tsr_gemm_facts *own = &space->device->gemm[space->types];
  const tsr_tuned *row =
      tsr_tuning_find(space->device, space->types, form, product->m, product->n, product->k);
  tsr_gemm_facts other;
  if (row) add_start(space, row->facts);
  add_start(space, *own);
  for (int preference = 0;; preference++) {
    offer(space->device, space->types, preference, &other);
    if (other.family == TSR_GEMM_NONE) return;
    if (other.family != TSR_GEMM_REFERENCE && (other.panel == own->panel || space->any_panel))
      add_start(space, other);
  }
}

tsr_status tsr_tuning_space_create(const tsr_device *device, const tsr_tuning_product *product,
                                   const tsr_tuning_space_options *options, tsr_tuning_space **out,
                                   tsr_error *error) {
  tsr_gemm_types types;
  int form;
  TSR_CHECK_OPTIONS_SIZE(options, tsr_tuning_space_options);
  TSR_RETURN_IF_FAILED(tsr_tuning_product_read(product, &types, &form, error));
  if (device->gemm[types].family == TSR_GEMM_NONE)
    return tsr_fail(error, TSR_ERROR_UNSUPPORTED, "products in %s: %s does not have them",
                    tsr_gemm_types_name(types), device->info.name);
  tsr_tuning_space *space = tsr_calloc(1, sizeof *space);
  if (!space) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for a tuning space");
  space->device = device;
  space->types = types;
  space->any_panel = options && options->any_panel;
  bool as_stored = !form && tsr_gemm_dtype_a(types) == tsr_gemm_dtype_b(types);
  add_starts(space, product, form);
  bool small = !form && product->m <= space->start_facts[0].small_m;
  space->relevant[ALWAYS] = !small;
  space->relevant[AS_STORED] = as_stored && !small;
  space->relevant[COPIED] = !as_stored && !small;
  space->relevant[FEW_ROWS] = small && product->m > 1;
  space->relevant[ONE_ROW] = small && product->m == 1;
  *out = space;
  return TSR_OK;
}

void tsr_tuning_space_destroy(tsr_tuning_space **space) {
  if (!space || !*space) return;
  free(*space);
  *space = NULL;
}

const char *tsr_tuning_space_start(const tsr_tuning_space *space, size_t index) {
  return index < space->start_count ? space->starts[index] : NULL;
}

/* The place-th of the axes that count for the product. */
static const axis *find_axis(const tsr_tuning_space *space, tsr_gemm_family family, size_t place) {
  for (size_t i = 0; i < families[family].axis_count; i++)
    if (space->relevant[families[family].axes[i].relevance] && place-- == 0) return &families[family].axes[i];
  return space->any_panel && place < families[family].width_count ? &families[family].width_axes[place]
                                                                  : NULL;
}

/* The axis's list, and, in its place, what the family's start has. Returns how many there are. */
static size_t values_of(const tsr_tuning_space *space, tsr_gemm_family family, const axis *axis,
                        int32_t values[VALUES_MAX + 1]) {
  size_t count = (size_t)axis->count, start = 0, place = 0;
  memcpy(values, axis->values, count * sizeof *values);
  while (start < space->start_count && space->start_facts[start].family != family) start++;
  if (start == space->start_count) return count;
  int32_t own = *(const int32_t *)((const char *)&space->start_facts[start] + axis->offset);
  while (place < count && values[place] < own) place++;
  if (place < count && values[place] == own) return count;
  memmove(values + place + 1, values + place, (count - place) * sizeof *values);
  values[place] = own;
  return count + 1;
}

tsr_status tsr_tuning_space_step(const tsr_tuning_space *space, const char *variant, size_t axis_index,
                                 size_t index, char out[TSR_VARIANT_BYTES], tsr_error *error) {
  tsr_gemm_facts facts;
  TSR_RETURN_IF_FAILED(tsr_gemm_facts_parse(variant, &facts, error));
  int32_t values[VALUES_MAX + 1];
  const axis *axis = find_axis(space, facts.family, axis_index);
  if (!axis || index >= values_of(space, facts.family, axis, values))
    return tsr_fail(error, TSR_ERROR_NOT_FOUND, "family %s has no value %zu of parameter %zu to search",
                    tsr_gemm_family_name(facts.family), index, axis_index);
  *(int32_t *)((char *)&facts + axis->offset) = values[index];
  if (families[facts.family].follow) families[facts.family].follow(&facts);
  tsr_gemm_facts_format(&facts, out, TSR_VARIANT_BYTES);
  return tsr_tuning_check(space->device, space->types, &facts, error);
}
