/* distributed_support.c: see the header. */
#include "distributed_support.h"

enum { BLOCKS_MAX = 8192, GAP_BYTE = 0xA5 };

typedef struct placed {
  tsr_block at;
  int member;
  int64_t offset; /* of a block-cyclic one: in its member's local array */
} placed;

typedef struct placing {
  placed *blocks;
  int count;
  int members;
} placing;

static void place(placing *p, int member, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  assert_in_range(p->count, 0, BLOCKS_MAX - 1);
  p->blocks[p->count++] =
      (placed){.at = {.row = row, .col = col, .rows = rows, .cols = cols}, .member = member};
}

static void place_cuts(placing *p, int64_t rows, int64_t cols) {
  int axis = (int)exec_between(0, 1);
  int64_t begin = 0, extent = axis ? cols : rows;
  for (int i = 0; i < p->members; i++) {
    int64_t length = i == p->members - 1  ? extent - begin
                     : exec_between(0, 2) ? exec_between(0, (extent - begin) / 2)
                                          : 0;
    place(p, i, axis ? 0 : begin, axis ? begin : 0, axis ? rows : length, axis ? length : cols);
    begin += length;
  }
}

/* Cuts a rectangle in two, again and again. */
static void place_pieces(placing *p, int64_t row, int64_t col, int64_t rows, int64_t cols, int depth,
                         bool replicas) {
  if (depth && exec_between(0, 5)) {
    bool by_rows = exec_between(0, 1);
    int64_t cut = exec_between(0, by_rows ? rows : cols);
    place_pieces(p, row, col, by_rows ? cut : rows, by_rows ? cols : cut, depth - 1, replicas);
    place_pieces(p, by_rows ? row + cut : row, by_rows ? col : col + cut, by_rows ? rows - cut : rows,
                 by_rows ? cols : cols - cut, depth - 1, replicas);
    return;
  }
  int member = (int)exec_between(0, p->members - 1);
  place(p, member, row, col, rows, cols);
  for (int i = 0; replicas && i < p->members; i++)
    if (i != member && exec_between(0, 1)) place(p, i, row, col, rows, cols);
}

static void place_cyclic(placing *p, int64_t rows, int64_t cols, int grid_rows, int grid_cols) {
  tsr_block_cyclic layout = {.rows = rows,
                             .cols = cols,
                             .block_rows = exec_between(2, 9),
                             .block_cols = exec_between(2, 9),
                             .first_row = (int)exec_between(0, grid_rows - 1),
                             .first_col = (int)exec_between(0, grid_cols - 1),
                             .grid_rows = grid_rows,
                             .grid_cols = grid_cols};
  tsr_block *blocks = calloc(BLOCKS_MAX, sizeof *blocks);
  for (int member = 0; member < p->members; member++) {
    int64_t count;
    bool inside = member < grid_rows * grid_cols;
    layout.grid_row = inside ? member / grid_cols : -1;
    layout.grid_col = inside ? member % grid_cols : -1;
    exec_ok(tsr_block_cyclic_blocks(&layout, TSR_F32, NULL, blocks, BLOCKS_MAX, &count, &exec_error));
    for (int64_t i = 0; i < count; i++)
      place(p, member, blocks[i].row, blocks[i].col, blocks[i].rows, blocks[i].cols);
  }
  free(blocks);
}

static void place_all(placing *p, int64_t rows, int64_t cols, spread how) {
  int grid_rows = (int)exec_between(1, p->members), grid_cols = p->members / grid_rows;
  tsr_block block;
  switch (how) {
  case SPREAD_CYCLIC: place_cyclic(p, rows, cols, grid_rows, grid_cols); return;
  case SPREAD_CUTS: place_cuts(p, rows, cols); return;
  case SPREAD_ONE: place(p, (int)exec_between(0, p->members - 1), 0, 0, rows, cols); return;
  case SPREAD_PIECES: place_pieces(p, 0, 0, rows, cols, 4, false); return;
  case SPREAD_REPLICAS: place_pieces(p, 0, 0, rows, cols, 3, true); return;
  default: break;
  }
  for (int i = 0; i < p->members; i++) {
    if (how == SPREAD_EVERYWHERE)
      block = tsr_block_of_rows(rows, cols, 1, 0);
    else if (how == SPREAD_ROWS)
      block = tsr_block_of_rows(rows, cols, p->members, i);
    else if (how == SPREAD_COLS)
      block = tsr_block_of_cols(rows, cols, p->members, i);
    else if (i < grid_rows * grid_cols)
      block = tsr_block_of_grid(rows, cols, grid_rows, grid_cols, i / grid_cols, i % grid_cols);
    else
      continue;
    place(p, i, block.row, block.col, block.rows, block.cols);
  }
}

/* ---- memory ---- */

static void put(tsr_dtype dtype, void *at, double value) {
  if (dtype == TSR_F64)
    *(double *)at = value;
  else
    *(float *)at = (float)value;
}

static double get(tsr_dtype dtype, const void *at) {
  return dtype == TSR_F64 ? *(const double *)at : *(const float *)at;
}

static char *element(const spread_matrix *m, int member, const tsr_block *block, int64_t i, int64_t j) {
  int64_t at = m->parts[member].column_major ? j * block->ld + i : i * block->ld + j;
  return (char *)block->data + at * (int64_t)tsr_dtype_bytes(m->dtype);
}

static void fill(spread_matrix *m, int member, const double *whole) {
  for (int64_t b = 0; b < m->parts[member].block_count; b++) {
    const tsr_block *block = &m->parts[member].blocks[b];
    for (int64_t i = 0; i < block->rows; i++)
      for (int64_t j = 0; j < block->cols; j++)
        put(m->dtype, element(m, member, block, i, j),
            whole ? whole[(block->row + i) * m->cols + block->col + j] : (double)NAN);
  }
  memcpy(m->before[member], m->memory[member], m->bytes[member]);
}

/* One member's blocks, one behind the other, with gaps in between and between lines. */
static void give_memory(spread_matrix *m, int member, const placing *p) {
  int64_t size = (int64_t)tsr_dtype_bytes(m->dtype), elements = 0;
  tsr_block *blocks = calloc((size_t)p->count + 1, sizeof *blocks);
  int64_t *offsets = calloc((size_t)p->count + 1, sizeof *offsets);
  tsr_part *part = &m->parts[member];
  *part = (tsr_part){.blocks = blocks, .column_major = exec_between(0, 1)};
  bool dense = exec_between(0, 2) == 0;
  for (int i = 0; i < p->count; i++) {
    if (p->blocks[i].member != member) continue;
    tsr_block *block = &blocks[part->block_count];
    *block = p->blocks[i].at;
    int64_t length = part->column_major ? block->rows : block->cols;
    block->ld = length + (dense ? 0 : exec_between(1, 5));
    offsets[part->block_count++] = elements + 1;
    elements += 1 + block->ld * (part->column_major ? block->cols : block->rows);
  }
  m->bytes[member] = (size_t)((elements + 1) * size);
  m->memory[member] = malloc(m->bytes[member]);
  m->before[member] = malloc(m->bytes[member]);
  memset(m->memory[member], GAP_BYTE, m->bytes[member]);
  for (int64_t b = 0; b < part->block_count; b++) blocks[b].data = m->memory[member] + offsets[b] * size;
  free(offsets);
}

void spread_init(spread_matrix *m, int64_t rows, int64_t cols, tsr_dtype dtype, int members, spread how,
                 int64_t high) {
  *m = (spread_matrix){.rows = rows, .cols = cols, .dtype = dtype, .members = members};
  m->whole = calloc((size_t)(rows * cols) + 1, sizeof *m->whole);
  for (int64_t i = 0; i < rows * cols; i++) m->whole[i] = (double)exec_between(-high, high);
  placing p = {.blocks = calloc(BLOCKS_MAX, sizeof *p.blocks), .members = members};
  place_all(&p, rows, cols, how);
  for (int i = 0; i < members; i++) {
    give_memory(m, i, &p);
    fill(m, i, m->whole);
  }
  free(p.blocks);
}

void spread_poison(spread_matrix *m) {
  for (int i = 0; i < m->members; i++) fill(m, i, NULL);
}

/* Puts back what was there before where an element is right, so that all the rest can be compared at once. */
void spread_expect(const spread_matrix *m, const double *whole, const double *bound, const char *what) {
  size_t size = tsr_dtype_bytes(m->dtype);
  for (int member = 0; member < m->members; member++) {
    char *copy = malloc(m->bytes[member] + 1);
    memcpy(copy, m->memory[member], m->bytes[member]);
    for (int64_t b = 0; b < m->parts[member].block_count; b++) {
      const tsr_block *block = &m->parts[member].blocks[b];
      for (int64_t i = 0; i < block->rows; i++)
        for (int64_t j = 0; j < block->cols; j++) {
          char *at = element(m, member, block, i, j);
          int64_t index = (block->row + i) * m->cols + block->col + j;
          double found = get(m->dtype, at), error = fabs(found - whole[index]);
          if (!(found == whole[index] || (bound && error <= bound[index])))
            fail_msg("%s: member %d of %d, block %lld: element (%lld, %lld) is %.17g, expected %.17g", what,
                     member, m->members, (long long)b, (long long)(block->row + i),
                     (long long)(block->col + j), found, whole[index]);
          memcpy(copy + (at - m->memory[member]), m->before[member] + (at - m->memory[member]), size);
        }
    }
    if (memcmp(copy, m->before[member], m->bytes[member]))
      fail_msg("%s: member %d of %d: memory outside of its blocks was written", what, member, m->members);
    free(copy);
  }
}

void spread_finish(spread_matrix *m) {
  for (int i = 0; i < m->members; i++) {
    free((void *)m->parts[i].blocks);
    free(m->memory[i]);
    free(m->before[i]);
  }
  free(m->whole);
}

/* ---- the least ---- */

static bool in_block(const tsr_part *part, int64_t row, int64_t col) {
  for (int64_t b = 0; b < part->block_count; b++) {
    const tsr_block *at = &part->blocks[b];
    if (row >= at->row && row < at->row + at->rows && col >= at->col && col < at->col + at->cols) return true;
  }
  return false;
}

int64_t spread_least_moved(const spread_matrix *m, const tsr_plan *plan, tsr_value value, bool output) {
  int64_t moved = 0;
  for (int member = 0; member < m->members; member++) {
    tsr_rectangle shard = {0, 0, 0, 0};
    for (int r = 0; r < plan->decision.active_count; r++)
      if (plan->decision.active[r] == member) shard = tsr_distributed_shard(plan, value, r);
    for (int64_t i = 0; i < m->rows; i++)
      for (int64_t j = 0; j < m->cols; j++) {
        bool in_shard =
            i >= shard.row && i < shard.row + shard.rows && j >= shard.col && j < shard.col + shard.cols;
        bool owns = in_block(&m->parts[member], i, j);
        moved += output ? owns && !in_shard : in_shard && !owns;
      }
  }
  return moved;
}
