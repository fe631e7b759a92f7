// Algorithm 2 of INCEPTIONN (section V), or our bounded mode: one float32 becomes a tag of two bits
// and 0, 1, 2 or 4 bytes. The meaning is src/kernels/burst.cpp, and spec/wire-format.md, codec 7.
// Two registers deep; both move where `enable` is high.
module compression_block (
    input  logic        clk,
    input  logic        enable,
    input  logic [31:0] value,
    input  logic        bounded,     // 0: Algorithm 2 to the letter
    input  logic [ 3:0] bound_bits,  // the bound is 2^-bound_bits, 1 to 15
    output logic [ 1:0] tag,         // 0, 1, 2, 3: no, one, two, four bytes
    output logic [31:0] data         // in the low bytes; the others are 0
);
  // First stage: the magnitude as a fixed-point number of 38 bits below the point, exact down to
  // 2^-15, which is all that either mode asks for.
  logic [ 7:0] exponent;
  logic [ 3:0] shift;          // 127 - exponent, where the value is neither large nor tiny
  logic        is_large_next;  // 1 or more, infinities and NaN among them
  logic        is_tiny_next;   // below 2^-15: no bit is left in either mode
  always_comb begin
    exponent = value[30:23];
    shift = 4'd15 - exponent[3:0];
    is_large_next = exponent >= 8'd127;
    is_tiny_next = exponent < 8'd112;
  end

  logic [37:0] fraction;
  logic [31:0] whole;
  logic [ 3:0] distance;
  logic is_large, is_tiny, is_bounded;
  logic [3:0] bound;
  always_ff @(posedge clk) begin
    if (enable) begin
      // The 1 in front of the mantissa stands at 2^-1 after a shift by 1, which is the smallest.
      fraction <= 38'({1'b1, value[22:0], 15'd0} >> shift);
      whole <= value;
      distance <= shift;
      is_large <= is_large_next;
      is_tiny <= is_tiny_next;
      is_bounded <= bounded;
      bound <= bound_bits;
    end
  end

  // Paper: bits are cut off, and the exponent alone chooses the class: two bytes from
  // 2^-(b - ceil(b / 2)) on, one byte from 2^-b on.
  logic [1:0] paper_tag;
  logic [3:0] byte_from;
  always_comb begin
    byte_from = bound - ((bound >> 1) + {3'd0, bound[0]});
    if (is_tiny || distance > bound) paper_tag = 2'd0;
    else if (distance <= byte_from) paper_tag = 2'd2;
    else paper_tag = 2'd1;
  end

  // Bounded: the nearest multiple of 2^-(b - 1), ties to even; of 2^-15 where seven bits do not
  // hold it.
  logic [14:0] kept, steps;
  logic [15:0] steps_rounded, fine_rounded;
  logic [15:0] below;  // bits under the steps' last, the first of them on top
  logic [ 1:0] bounded_tag;
  always_comb begin
    kept = fraction[37:23];
    {steps, below} = 31'({kept, 16'd0} >> (5'd16 - {1'b0, bound}));
    steps_rounded = {1'b0, steps} + 16'(below[15] && (steps[0] || |below[14:0] || |fraction[22:0]));
    fine_rounded = {1'b0, kept} + 16'(fraction[22] && (kept[0] || |fraction[21:0]));
    if (is_tiny || steps_rounded == 16'd0) bounded_tag = 2'd0;
    else if (steps_rounded <= 16'd127) bounded_tag = 2'd1;
    else bounded_tag = 2'd2;
  end

  logic [ 1:0] tag_next;
  logic [ 6:0] byte_bits;
  logic [14:0] two_byte_bits;
  always_comb begin
    tag_next = is_large ? 2'd3 : is_bounded ? bounded_tag : paper_tag;
    byte_bits = is_bounded ? steps_rounded[6:0] : kept[14:8];
    // The largest floats below 1 round to 2^15, which 15 bits do not hold.
    two_byte_bits = !is_bounded ? kept : fine_rounded[15] ? 15'h7FFF : fine_rounded[14:0];
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      tag <= tag_next;
      case (tag_next)
        2'd0: data <= 32'd0;
        2'd1: data <= {24'd0, whole[31], byte_bits};
        2'd2: data <= {16'd0, whole[31], two_byte_bits};
        default: data <= whole;
      endcase
    end
  end
endmodule
