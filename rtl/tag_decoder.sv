// Fig. 10's tag decoder: where the bytes of each of a burst's values lie. Combinational.
module tag_decoder (
    input  logic [15:0] tags,
    input  logic [ 3:0] floats,      // 0 to 8 values
    input  logic [ 1:0] rest_bytes,  // bytes behind them that are no float; 0 where floats is 8
    output logic [47:0] offsets,     // 6 bits a lane: the lane's first byte behind the tags
    output logic [ 5:0] bytes,       // of the burst, tags and all: up to 34
    output logic        stray        // a tag past the last value is not 0
);
  always_comb begin
    bytes = 6'd0;
    stray = 1'b0;
    for (int i = 0; i < 8; i = i + 1) begin
      offsets[6*i+:6] = bytes;
      if (4'(i) < floats) begin
        bytes = bytes + (tags[2*i+:2] == 2'd3 ? 6'd4 : {4'd0, tags[2*i+:2]});
      end else if (tags[2*i+:2] != 2'd0) begin
        stray = floats != 4'd0;
      end
    end
    bytes = bytes + {4'd0, rest_bytes} + (floats != 4'd0 ? 6'd2 : 6'd0);
  end
endmodule
