// Algorithm 3 of INCEPTIONN (section V), or our bounded mode: a tag and its bytes become a float32.
// A field without a 1 is the value +0 (the paper leaves its first 1 undefined). Combinational.
module decompression_block (
    input  logic [ 1:0] tag,
    input  logic [31:0] data,        // bytes above the tag's own are ignored
    input  logic        bounded,
    input  logic [ 3:0] bound_bits,  // the bound is 2^-bound_bits, 1 to 15
    output logic [31:0] value
);
  logic [14:0] field;     // the magnitude, its top bit worth 2^-1
  logic [14:0] aligned;   // the field with its first 1 on top
  logic [ 3:0] position;  // of the first 1 from the top, the top is 0
  logic [ 7:0] exponent;
  logic        sign;
  always_comb begin
    field = tag[0] ? {data[6:0], 8'd0} : data[14:0];
    sign = tag[0] ? data[7] : data[15];
    aligned = field;
    position = 4'd0;
    for (int step = 8; step >= 1; step = step / 2) begin
      if ((aligned >> (15 - step)) == 15'd0) begin
        aligned = aligned << step;
        position = position + 4'(step);
      end
    end
    exponent = 8'd126 - {4'd0, position};
    // A byte of the bounded mode counts steps of 2^-(b - 1), not of 2^-7.
    if (bounded && tag[0]) exponent = exponent + 8'd8 - {4'd0, bound_bits};
    case (tag)
      2'd0: value = 32'd0;
      2'd3: value = data;
      default: value = field == 15'd0 ? 32'd0 : {sign, exponent, aligned[13:0], 9'd0};
    endcase
  end
endmodule
