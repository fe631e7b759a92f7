// Fig. 9's binary shifter tree: eight vectors of 0 to 4 bytes become one of 0 to 32. Each level
// moves the right one of two neighbours up to where the left one ends. Three registers deep; all
// move where `enable` is high.
module shifter_tree (
    input  logic         clk,
    input  logic         enable,
    input  logic [255:0] lanes,    // 4 bytes a lane; bytes at and above a lane's size are 0
    input  logic [ 23:0] sizes,    // 3 bits a lane: 0 to 4 bytes
    output logic [255:0] aligned,  // bytes at and above `bytes` are 0
    output logic [  5:0] bytes
);
  logic [ 63:0] pair_data[0:3];
  logic [  3:0] pair_size[0:3];
  logic [127:0] half_data[0:1];
  logic [  4:0] half_size[0:1];

  always_ff @(posedge clk) begin
    if (enable) begin
      for (int i = 0; i < 4; i = i + 1) begin
        pair_data[i] <= {32'd0, lanes[64*i+:32]} |
            ({32'd0, lanes[64*i+32+:32]} << {sizes[6*i+:3], 3'd0});
        pair_size[i] <= {1'b0, sizes[6*i+:3]} + {1'b0, sizes[6*i+3+:3]};
      end
      for (int i = 0; i < 2; i = i + 1) begin
        half_data[i] <= {64'd0, pair_data[2*i]} |
            ({64'd0, pair_data[2*i+1]} << {pair_size[2*i], 3'd0});
        half_size[i] <= {1'b0, pair_size[2*i]} + {1'b0, pair_size[2*i+1]};
      end
      aligned <= {128'd0, half_data[0]} | ({128'd0, half_data[1]} << {half_size[0], 3'd0});
      bytes <= {1'b0, half_size[0]} + {1'b0, half_size[1]};
    end
  end
endmodule
